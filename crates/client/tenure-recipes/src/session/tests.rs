//! The schedule, driven by hand.

use std::time::Duration;

use super::{DISAGREEMENT_MAX, EndCause, KeepAliveSchedule, LOSS_LEAD, LostReason, SessionState, Step};
use crate::clock::Instants;

const START: Instants = Instants {
    boot: Duration::from_secs(1_000),
    monotonic: Duration::from_secs(500),
};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A session of this TTL opened at the start, and a hand that drives it.
struct Hand {
    schedule: KeepAliveSchedule,
    ttl: Duration,
    now: Instants,
    attempts: u64,
    /// Sends, as milliseconds after the start.
    sends: Vec<u64>,
}

impl Hand {
    fn new(ttl_ms: u64) -> Hand {
        let ttl = ms(ttl_ms);
        Hand {
            schedule: KeepAliveSchedule::new(ttl, START, ttl),
            ttl,
            now: START,
            attempts: 0,
            sends: Vec::new(),
        }
    }

    fn after_ms(&self) -> u64 {
        u64::try_from((self.now.boot - START.boot).as_millis()).unwrap()
    }

    fn is_lost(&mut self) -> bool {
        matches!(self.schedule.state(self.now), SessionState::Lost { .. })
    }

    fn send(&mut self) -> u64 {
        self.attempts += 1;
        self.schedule.sent(self.now, self.attempts);
        self.sends.push(self.after_ms());
        self.attempts
    }

    /// Runs by the millisecond up to this many milliseconds after the start; each attempt meets `fate`.
    fn run_until(&mut self, end_ms: u64, mut fate: impl FnMut(u64) -> Fate) {
        while self.after_ms() < end_ms && !self.is_lost() {
            if let Step::Send { .. } = self.schedule.step(self.now) {
                let at = self.after_ms();
                let attempt = self.send();
                match fate(at) {
                    Fate::Answered => self.schedule.answered(self.now, attempt, self.ttl),
                    Fate::Failed => self.schedule.failed(self.now, attempt),
                    Fate::Silent => {}
                }
            }
            self.now = self.now.plus(ms(1));
        }
    }
}

enum Fate {
    Answered,
    Failed,
    Silent,
}

#[test]
fn an_attempt_is_sent_every_sixth_of_the_ttl() {
    let mut hand = Hand::new(9_000);
    hand.run_until(9_001, |_| Fate::Answered);
    assert_eq!(hand.sends, [1_500, 3_000, 4_500, 6_000, 7_500, 9_000]);
    assert_eq!(hand.schedule.state(hand.now), SessionState::Live);
}

#[test]
fn when_every_answer_is_lost_the_session_is_lost_before_the_end_of_its_belief() {
    let mut hand = Hand::new(9_000);
    hand.run_until(20_000, |_| Fate::Silent);
    assert!(hand.after_ms() <= 7_200, "lost after {} ms", hand.after_ms());
    assert!(hand.after_ms() >= 7_190, "and not much earlier than it must be");
    assert_eq!(
        hand.schedule.state(hand.now),
        SessionState::Lost {
            reason: LostReason::Unconfirmed
        }
    );
    // An attempt without an answer makes room for the next one after a twelfth of the TTL.
    assert_eq!(hand.sends[..4], [1_500, 2_250, 3_000, 3_750]);
}

#[test]
fn failures_for_four_seconds_of_ten_are_no_loss() {
    let mut hand = Hand::new(10_000);
    hand.run_until(30_000, |at| {
        if (3_100..7_100).contains(&at) {
            Fate::Failed
        } else {
            Fate::Answered
        }
    });
    assert!(!hand.is_lost());
    assert_eq!(hand.after_ms(), 30_000);
    assert!(hand.schedule.is_valid(hand.now));
}

#[test]
fn a_failed_attempt_is_followed_by_another_soon_but_not_at_once() {
    let mut hand = Hand::new(10_000);
    hand.run_until(3_000, |_| Fate::Failed);
    assert_eq!(hand.sends, [1_667, 2_167, 2_667]);
}

#[test]
fn the_belief_counts_from_the_sending_of_the_attempt_that_is_answered() {
    let mut hand = Hand::new(6_000);
    hand.now = START.plus(ms(1_000));
    let first = hand.send();
    hand.now = START.plus(ms(1_900));
    let _second = hand.send();
    hand.now = START.plus(ms(2_000));
    hand.schedule.answered(hand.now, first, ms(6_000));
    assert_eq!(hand.schedule.deadline(), START.boot + ms(1_000) + ms(4_800) - LOSS_LEAD);
}

#[test]
fn a_late_answer_to_an_earlier_attempt_never_shortens_the_belief() {
    let mut hand = Hand::new(6_000);
    hand.now = START.plus(ms(1_000));
    let first = hand.send();
    hand.now = START.plus(ms(2_000));
    let second = hand.send();
    hand.schedule.answered(hand.now, second, ms(6_000));
    let deadline = hand.schedule.deadline();
    hand.schedule.answered(hand.now, first, ms(6_000));
    assert_eq!(hand.schedule.deadline(), deadline);
}

#[test]
fn an_answer_that_was_given_twice_or_to_nothing_changes_nothing() {
    let mut hand = Hand::new(6_000);
    hand.now = START.plus(ms(1_000));
    let attempt = hand.send();
    hand.schedule.answered(hand.now, attempt, ms(3_000));
    let deadline = hand.schedule.deadline();
    hand.schedule.answered(hand.now, attempt, ms(6_000));
    hand.schedule.answered(hand.now, 77, ms(6_000));
    assert_eq!(hand.schedule.deadline(), deadline);
}

#[test]
fn a_server_that_promises_more_than_the_ttl_is_not_believed() {
    let mut hand = Hand::new(6_000);
    hand.now = START.plus(ms(1_000));
    let attempt = hand.send();
    hand.schedule.answered(hand.now, attempt, ms(600_000));
    assert_eq!(hand.schedule.deadline(), START.boot + ms(1_000) + ms(4_800) - LOSS_LEAD);
}

#[test]
fn after_a_loss_nothing_is_sent_and_no_answer_brings_it_back() {
    let mut hand = Hand::new(1_000);
    hand.now = START.plus(ms(700));
    let attempt = hand.send();
    hand.now = START.plus(ms(1_300));
    assert_eq!(hand.schedule.step(hand.now), Step::Lost(LostReason::Unconfirmed));
    hand.schedule.answered(hand.now, attempt, ms(1_000));
    for later in [1_301, 2_000, 60_000] {
        assert_eq!(
            hand.schedule.step(START.plus(ms(later))),
            Step::Lost(LostReason::Unconfirmed)
        );
    }
    assert_eq!(hand.schedule.remaining(hand.now), Duration::ZERO);
}

#[test]
fn an_answer_that_comes_after_the_deadline_is_too_late_even_if_nobody_looked_in_between() {
    let mut hand = Hand::new(1_000);
    hand.now = START.plus(ms(100));
    let attempt = hand.send();
    hand.now = START.plus(ms(950));
    hand.schedule.answered(hand.now, attempt, ms(1_000));
    assert!(!hand.schedule.is_valid(hand.now), "the belief had ended at 800 ms");
}

#[test]
fn a_suspension_longer_than_the_belief_is_a_loss_at_the_next_look() {
    let mut hand = Hand::new(10_000);
    let now = Instants {
        boot: START.boot + ms(60_005),
        monotonic: START.monotonic + ms(5),
    };
    assert!(!hand.schedule.is_valid(now));
    assert_eq!(
        hand.schedule.state(now),
        SessionState::Lost {
            reason: LostReason::Unconfirmed
        }
    );
}

#[test]
fn after_a_short_suspension_the_session_is_valid_again_only_once_the_server_confirmed_it() {
    let mut hand = Hand::new(10_000);
    hand.now = START.plus(ms(1_000));
    let before = hand.send();
    hand.now.boot += ms(3_000);
    assert!(!hand.schedule.is_valid(hand.now));
    assert_eq!(hand.schedule.state(hand.now), SessionState::Suspect);
    hand.schedule.answered(hand.now, before, ms(10_000));
    assert!(
        !hand.schedule.is_valid(hand.now),
        "an attempt from before the suspension proves nothing after it"
    );
    assert!(
        matches!(hand.schedule.step(hand.now), Step::Send { .. }),
        "the server is asked at once"
    );
    let after = hand.send();
    hand.schedule.answered(hand.now, after, ms(10_000));
    assert!(hand.schedule.is_valid(hand.now));
    assert_eq!(hand.schedule.state(hand.now), SessionState::Live);
}

#[test]
fn small_disagreements_of_the_clocks_are_no_reason_to_doubt_but_they_add_up() {
    let mut hand = Hand::new(10_000);
    hand.now.boot += DISAGREEMENT_MAX;
    assert!(hand.schedule.is_valid(hand.now));
    hand.now.boot += ms(1);
    assert!(!hand.schedule.is_valid(hand.now));
}

#[test]
fn without_contact_for_half_the_belief_the_session_is_suspect_and_still_valid() {
    let mut hand = Hand::new(10_000);
    hand.now = START.plus(ms(4_001));
    assert_eq!(hand.schedule.state(hand.now), SessionState::Suspect);
    assert!(hand.schedule.is_valid(hand.now));
}

#[test]
fn an_end_that_the_server_reports_is_final_and_named() {
    let mut hand = Hand::new(10_000);
    hand.now = START.plus(ms(1_700));
    let attempt = hand.send();
    let reason = LostReason::Ended {
        cause: EndCause::Forced,
        revision: 17,
    };
    hand.schedule.ended(hand.now, attempt, reason);
    assert_eq!(hand.schedule.step(hand.now), Step::Lost(reason));
    hand.schedule.stop();
    assert_eq!(
        hand.schedule.step(hand.now),
        Step::Lost(reason),
        "the first reason stays"
    );
}

#[test]
fn a_stopped_schedule_sends_nothing() {
    let mut hand = Hand::new(10_000);
    hand.schedule.stop();
    hand.run_until(60_000, |_| Fate::Answered);
    assert_eq!(hand.sends, [0_u64; 0]);
    assert!(!hand.schedule.is_valid(START));
}

#[test]
fn a_wait_never_goes_beyond_the_deadline() {
    let mut hand = Hand::new(600);
    hand.now = START.plus(ms(450));
    hand.send();
    match hand.schedule.step(hand.now) {
        Step::Wait { until } => assert_eq!(until, hand.schedule.deadline()),
        step => panic!("expected to wait, got {step:?}"),
    }
}

#[test]
fn late_answers_are_remembered_within_a_bound() {
    let mut hand = Hand::new(86_400_000);
    for _ in 0..1_000 {
        hand.send();
    }
    assert!(hand.schedule.sent.len() <= super::ATTEMPTS_REMEMBERED_MAX);
}
