//! Counters, and deleting by prefix: once each, whatever becomes of the answers.

use bytes::Bytes;
use tenure_api::v1::{self, WireError};
use tenure_client::{ErrorCode, Outcome, RequestMode};

use crate::fake::{Ask, Cluster, Fate, Received};
use crate::world::{World, ms};

/// Meets the first so many requests of a kind with these fates and serves everything else.
pub(crate) fn meets(
    cluster: &Cluster,
    kind: impl Fn(&Ask) -> bool + Send + 'static,
    fates: impl IntoIterator<Item = Fate>,
) {
    let mut fates: std::collections::VecDeque<Fate> = fates.into_iter().collect();
    cluster.fates(move |received: &Received| {
        if kind(&received.body) {
            fates.pop_front().unwrap_or(Fate::Served)
        } else {
            Fate::Served
        }
    });
}

fn adds(cluster: &Cluster) -> Vec<v1::AddRequest> {
    cluster.received(|received| match &received.body {
        Ask::Add(add) => Some(add.clone()),
        _ => None,
    })
}

#[tokio::test(start_paused = true)]
async fn a_counter_counts_from_nothing_and_is_read_back() {
    let world = World::new(1);
    let cache = world.client().cache("c");
    let first = cache.add("hits", 3).ttl(ms(60_000)).await.unwrap();
    assert_eq!((first.sum, first.version), (3, first.created));
    assert_eq!(first.remaining, Some(ms(60_000)));
    assert!(first.deadline.unwrap().remaining() <= ms(48_000));
    let second = cache.add("hits", -5).await.unwrap();
    assert_eq!((second.sum, second.created), (-2, first.created));
    assert!(second.version > first.version);
    let asked = adds(&world.cluster);
    assert_eq!((asked[0].ttl_ms, asked[1].ttl_ms), (Some(60_000), None));
    world.cluster.state().objects.lenient = false;
    assert_eq!(cache.counter("hits").await.unwrap(), Some(-2));
    assert_eq!(cache.counter("nothing").await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_counter_is_of_the_wrong_type_and_nothing_was_done() {
    let world = World::new(1);
    world.cluster.state().objects.lenient = false;
    let client = world.client();
    client.create_cache("c").await.unwrap().done().unwrap();
    let cache = client.cache("c");
    for value in ["seven", "+7", "07", ""] {
        let _ = cache.put("k", value).await.unwrap();
        let error = cache.counter("k").await.unwrap_err();
        assert_eq!(
            (error.code(), error.outcome()),
            (ErrorCode::WrongType, Outcome::NotApplied)
        );
    }
    let error = cache.add("k", 1).await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::WrongType, Outcome::NotApplied)
    );
}

#[tokio::test(start_paused = true)]
async fn an_addition_whose_answer_is_lost_counts_once_in_both_remembered_modes() {
    for mode in [RequestMode::Numbered, RequestMode::OneShot] {
        let world = World::new(1);
        meets(
            &world.cluster,
            |ask| matches!(ask, Ask::Add(_)),
            [Fate::AnswerLost, Fate::AnswerBroken],
        );
        let client = world.builder(&["node-1:1"]).request_mode(mode).build().unwrap();
        let added = client.cache("c").add("k", 1).await.unwrap();
        assert_eq!((added.sum, added.repeated), (1, true), "{mode:?}");
        let asked = adds(&world.cluster);
        assert!(asked.len() > 1);
        let again = client.cache("c").add("k", 1).await.unwrap();
        assert_eq!((again.sum, again.repeated), (2, false), "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_anonymous_addition_whose_answer_is_lost_is_unknown_and_not_sent_again() {
    let world = World::new(1);
    meets(&world.cluster, |ask| matches!(ask, Ask::Add(_)), [Fate::AnswerBroken]);
    let client = world
        .builder(&["node-1:1"])
        .request_mode(RequestMode::Anonymous)
        .build()
        .unwrap();
    let error = client.cache("c").add("k", 1).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown);
    assert_eq!(adds(&world.cluster).len(), 1);
}

fn fill(world: &World, count: usize) {
    let state = &mut world.cluster.state().objects;
    for number in 0..count {
        let key = Bytes::from(format!("job/{number}"));
        let put = state.put(1, "c", &key, &Bytes::new(), None, None);
        assert!(put.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn deleting_by_prefix_takes_as_many_steps_as_it_needs() {
    let world = World::new(1);
    fill(&world, 8);
    let cache = world.client().cache("c");
    assert_eq!(cache.delete_prefix("other/").await.unwrap(), 0);
    // The second step's answer is lost, and it still counts once.
    meets(
        &world.cluster,
        |ask| matches!(ask, Ask::DeletePrefix(_)),
        [Fate::Served, Fate::AnswerLost],
    );
    assert_eq!(cache.delete_prefix("job/").await.unwrap(), 8);
    assert_eq!(cache.delete_prefix("").await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_by_prefix_can_be_run_step_by_step() {
    let world = World::new(1);
    fill(&world, 7);
    let mut deletion = world.client().cache("c").delete_prefix("job/");
    let mut steps = Vec::new();
    while let Some(step) = deletion.step().await.unwrap() {
        assert!(step.revision.is_some());
        steps.push((step.removed, step.more, deletion.removed()));
    }
    assert_eq!(steps, [(3, true, 3), (3, true, 6), (1, false, 7)]);
    assert_eq!(deletion.step().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_by_prefix_goes_on_after_steps_in_vain_but_not_for_ever() {
    let world = World::new(1);
    fill(&world, 7);
    let cache = world.client().cache("c");
    world.cluster.state().objects.steps_in_vain = 3;
    assert_eq!(cache.delete_prefix("job/").await.unwrap(), 7);
    world.cluster.state().objects.steps_in_vain = usize::MAX;
    let error = cache.delete_prefix("job/").await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::Overloaded, Outcome::NotApplied)
    );
}

#[tokio::test(start_paused = true)]
async fn a_deletion_by_prefix_that_fails_after_its_first_step_is_unknown() {
    let world = World::new(1);
    fill(&world, 7);
    let refused = || Fate::Error(WireError::invalid("prefix", "a test"));
    meets(
        &world.cluster,
        |ask| matches!(ask, Ask::DeletePrefix(_)),
        [refused(), Fate::Served, refused()],
    );
    let cache = world.client().cache("c");
    let first = cache.delete_prefix("job/").await.unwrap_err();
    assert_eq!(first.outcome(), Outcome::NotApplied);
    let second = cache.delete_prefix("job/").await.unwrap_err();
    assert_eq!(
        (second.code(), second.outcome()),
        (ErrorCode::Invalid, Outcome::Unknown)
    );
}
