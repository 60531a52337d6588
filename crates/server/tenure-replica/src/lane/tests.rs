//! Jobs are done in order, and a panic loses one job only.

use super::{JobLost, Lane};
use crate::runtime::Runtime;

#[tokio::test]
async fn a_panic_loses_one_job_and_the_lane_goes_on() {
    let runtime = Runtime::system();
    let lane = Lane::start(&*runtime.tasks, "test").unwrap();
    assert_eq!(lane.run(|| 1).await, Ok(1));
    assert_eq!(lane.run(|| panic!("on purpose")).await, Err::<(), _>(JobLost));
    assert_eq!(lane.run(|| 2).await, Ok(2));
}
