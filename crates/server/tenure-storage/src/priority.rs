//! Threads whose work nobody waits for give way to those that answer.

use rustix::process::setpriority_process;
use rustix::thread::gettid;

/// A third of the processor time of one that gives way to nobody, where there is not enough for both: little enough that
/// an answer does not wait for it, and enough that it comes along with what it is behind.
const NICENESS: i32 = 5;

/// Lets the calling thread give way to others from now on, and the threads that it starts (Linux gives a thread the
/// niceness of the one that starts it). Nothing changes where the system does not allow it.
pub fn give_way() {
    if let Err(error) = setpriority_process(Some(gettid()), NICENESS) {
        tracing::debug!(%error, "a thread in the background cannot give way to others");
    }
}
