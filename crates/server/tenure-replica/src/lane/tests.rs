//! Jobs are done in order, a panic loses one job only, and what is in the background gives way.

use std::thread;

use rustix::process::getpriority_process;
use rustix::thread::gettid;

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

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the engine starts its threads by itself too")]
async fn a_lane_in_the_background_gives_way_and_so_do_the_threads_of_its_jobs() {
    let runtime = Runtime::system();
    let usual = Lane::start(&*runtime.tasks, "usual").unwrap();
    let background = Lane::start_in_background(&*runtime.tasks, "behind").unwrap();
    let here = niceness();
    assert_eq!(usual.run(niceness).await, Ok(here));
    let behind = background.run(niceness).await.unwrap();
    assert!(behind > here, "{behind} beside {here}");
    let started = background.run(|| thread::scope(|scope| scope.spawn(niceness).join().unwrap()));
    assert_eq!(started.await, Ok(behind));
}

fn niceness() -> i32 {
    getpriority_process(Some(gettid())).unwrap()
}
