//! Random operations and openings against the naive model.

use proptest::prelude::*;
use tenure_storage::disk::RecordingDisk;
use tenure_storage::log::LogOptions;

use crate::log_support::{Model, Random, Run, open_on, small_options};

#[derive(Clone, Debug)]
enum Step {
    /// Some operations, from a seed.
    Ask(u64),
    Close,
    Kill,
    PowerLoss(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => any::<u64>().prop_map(Step::Ask),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
        1 => any::<u64>().prop_map(Step::PowerLoss),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_log_is_what_the_model_says_however_often_it_is_opened(
        steps in proptest::collection::vec(step(), 1..60),
        segment_bytes in prop_oneof![Just(4096_u64), Just(8192), Just(30_000)],
        tail_bytes_max in prop_oneof![Just(0_usize), Just(1500), Just(1 << 20)],
    ) {
        let options = LogOptions { segment_bytes, tail_bytes_max, ..small_options() };
        let mut disk = RecordingDisk::new();
        let log = open_on(&disk, options.clone()).unwrap();
        let mut run = Run::new(log, &disk, Model::default(), 0);
        for step in steps {
            match step {
                Step::Ask(seed) => {
                    run.random = Random(seed);
                    run.step(3);
                    prop_assert_eq!(&Model::of(&run.log), run.last_model());
                    continue;
                }
                // What is committed needs a batch to ride on, which only a close writes by itself.
                Step::Close => run.log.close(),
                Step::Kill => {
                    run.log.close();
                    disk = disk.after_kill();
                }
                Step::PowerLoss(seed) => {
                    run.log.close();
                    let mut random = Random(seed);
                    disk = disk.after_power_loss(&mut |bound| random.below(bound));
                }
            }
            let log = open_on(&disk, options.clone()).unwrap();
            prop_assert_eq!(&Model::of(&log), run.last_model());
            run = Run::new(log, &disk, run.last_model().clone(), 0);
        }
    }
}
