//! Groups that find their voters step by step.

use super::*;

fn ids(numbers: &[u64]) -> BTreeSet<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

fn alone(group: u32) -> GroupView {
    GroupView {
        group: GroupId(group),
        leader: NodeId(1),
        nodes: ids(&[1]),
        draining: ids(&[]),
        chosen: None,
        voters: ids(&[1]),
        learners: ids(&[]),
        joint: false,
        following: ids(&[]),
    }
}

/// Does what is asked for until nothing is, as a group in good health would, and returns the steps.
fn play(view: &mut GroupView) -> Vec<Move> {
    let mut steps = Vec::new();
    while let Some(step) = next_move(view) {
        assert!(steps.len() < 32, "it never comes to rest: {steps:?}");
        match &step {
            Move::AddLearner(node) => {
                view.learners.insert(*node);
                view.following.insert(*node);
            }
            Move::SetVoters(voters) => {
                assert!(voters.contains(&view.leader), "the leader makes the change: {steps:?}");
                // Two only for the moment in which one takes the place of the other.
                assert!(
                    voters.len() % 2 == 1 || view.nodes.len() == 2,
                    "an even number of voters: {steps:?}"
                );
                let members: BTreeSet<_> = view.voters.union(&view.learners).copied().collect();
                assert!(voters.is_subset(&members), "a voter without a replica: {steps:?}");
                view.learners = members.difference(voters).copied().collect();
                view.voters = voters.clone();
                view.joint = false;
            }
            Move::Transfer(node) => {
                assert!(view.voters.contains(node), "a leader without a vote: {steps:?}");
                view.following.remove(node);
                view.following.insert(view.leader);
                view.leader = *node;
            }
            Move::Remove(node) => {
                assert!(view.learners.remove(node), "a replica that is none: {steps:?}");
            }
        }
        steps.push(step);
    }
    steps
}

#[test]
fn one_node_votes_alone_and_rests() {
    assert_eq!(next_move(&alone(0)), None);
    assert_eq!(next_move(&alone(5)), None);
}

#[test]
fn of_two_nodes_one_votes() {
    let mut view = alone(1);
    view.nodes = ids(&[1, 2]);
    assert_eq!(play(&mut view), [Move::AddLearner(NodeId(2))]);
    assert_eq!((view.voters, view.learners), (ids(&[1]), ids(&[2])));
}

#[test]
fn three_nodes_all_vote_after_one_change_and_leaders_spread() {
    let mut leaders = BTreeSet::new();
    for group in 0..9 {
        let mut view = alone(group);
        view.nodes = ids(&[1, 2, 3]);
        let steps = play(&mut view);
        let changes = steps.iter().filter(|step| matches!(step, Move::SetVoters(_)));
        assert_eq!(changes.count(), 1, "one to three in one change: {steps:?}");
        assert_eq!(view.voters, ids(&[1, 2, 3]));
        assert_eq!(Some(view.leader), preferred_leader(&view));
        leaders.insert(view.leader);
    }
    assert_eq!(leaders, ids(&[1, 2, 3]));
}

#[test]
fn a_node_that_does_not_follow_is_no_voter() {
    let mut view = alone(1);
    view.nodes = ids(&[1, 2, 3]);
    view.learners = ids(&[2, 3]);
    view.following = ids(&[2]);
    assert_eq!(next_move(&view), None, "it waits for node 3");
    view.following = ids(&[2, 3]);
    assert_eq!(next_move(&view), Some(Move::SetVoters(ids(&[1, 2, 3]))));
}

#[test]
fn a_voter_that_is_gone_stays_one() {
    let mut view = alone(0);
    view.nodes = ids(&[1, 2, 3]);
    view.voters = ids(&[1, 2, 3]);
    assert_eq!(next_move(&view), None);
    view.nodes = ids(&[1, 2, 3, 4]);
    view.learners = ids(&[4]);
    view.following = ids(&[2, 4]);
    assert_eq!(next_move(&view), None, "nobody takes its place without being told to");
}

#[test]
fn a_change_that_was_left_half_way_is_finished() {
    let mut view = alone(2);
    view.nodes = ids(&[1, 2, 3]);
    view.voters = ids(&[1, 2, 3]);
    view.joint = true;
    assert_eq!(next_move(&view), Some(Move::SetVoters(ids(&[1, 2, 3]))));
}

#[test]
fn five_nodes_vote_in_the_system_group_and_share_the_home_groups() {
    let mut votes = std::collections::BTreeMap::new();
    for group in 0..64 {
        let mut view = alone(group);
        view.nodes = ids(&[1, 2, 3, 4, 5]);
        play(&mut view);
        let voters = if group == 0 { SYSTEM_VOTERS } else { VOTERS };
        assert_eq!(view.voters.len(), voters);
        assert_eq!(view.voters.len() + view.learners.len(), 5, "every node has a replica");
        assert!(view.voters.contains(&view.leader));
        for voter in view.voters {
            *votes.entry(voter).or_insert(0) += 1;
        }
    }
    assert_eq!(votes.len(), 5);
    assert!(votes.values().all(|votes| (24..=52).contains(votes)), "{votes:?}");
}

#[test]
fn a_removed_voter_is_replaced_and_loses_its_replica_even_if_it_leads() {
    for leader in 1..=3 {
        let mut view = alone(1);
        view.leader = NodeId(leader);
        view.nodes = ids(&[2, 3, 4]);
        view.voters = ids(&[1, 2, 3]);
        view.learners = ids(&[4]);
        view.following = ids(&[1, 2, 3, 4]);
        view.following.remove(&NodeId(leader));
        let steps = play(&mut view);
        assert_eq!(view.voters, ids(&[2, 3, 4]), "{steps:?}");
        assert_eq!(view.learners, ids(&[]), "{steps:?}");
    }
}

/// A group of so many nodes in which everybody follows, at rest.
fn at_rest(group: u32, nodes: &[u64]) -> GroupView {
    let mut view = alone(group);
    view.nodes = ids(nodes);
    play(&mut view);
    view
}

#[test]
fn a_drained_node_leads_nothing_and_votes_nowhere_if_three_others_can() {
    for group in 0..32 {
        let mut view = at_rest(group, &[1, 2, 3, 4]);
        for drained in 1..=4 {
            view.draining = ids(&[drained]);
            let steps = play(&mut view);
            assert_ne!(view.leader, NodeId(drained), "{steps:?}");
            assert_eq!(view.voters.len(), VOTERS, "{steps:?}");
            assert!(view.voters.is_disjoint(&view.draining), "{steps:?}");
            assert!(!is_needed(&view.nodes, &view.draining));
        }
    }
}

#[test]
fn of_three_nodes_a_drained_one_votes_on_and_leads_nothing() {
    for group in 0..9 {
        for drained in 1..=3 {
            let mut view = at_rest(group, &[1, 2, 3]);
            view.draining = ids(&[drained]);
            play(&mut view);
            assert_ne!(view.leader, NodeId(drained));
            assert_eq!(view.voters, ids(&[1, 2, 3]));
            assert!(is_needed(&view.nodes, &view.draining));
            view.draining.clear();
            play(&mut view);
            assert_eq!(Some(view.leader), preferred_leader(&view), "it is as it was before");
        }
    }
}

#[test]
fn the_only_voter_is_drained_into_the_other_node_of_two() {
    let mut view = at_rest(1, &[1, 2]);
    view.draining = ids(&[1]);
    let steps = play(&mut view);
    let both = Move::SetVoters(ids(&[1, 2]));
    let only = Move::SetVoters(ids(&[2]));
    assert_eq!(steps, [both, Move::Transfer(NodeId(2)), only]);
    assert!(!is_needed(&view.nodes, &view.draining));
    view.nodes = ids(&[2]);
    view.draining.clear();
    play(&mut view);
    assert_eq!((view.voters, view.learners), (ids(&[2]), ids(&[])));
}

#[test]
fn five_voters_become_three_when_one_of_five_nodes_is_drained() {
    let mut view = at_rest(0, &[1, 2, 3, 4, 5]);
    assert_eq!(view.voters.len(), SYSTEM_VOTERS);
    view.draining = ids(&[2]);
    play(&mut view);
    assert_eq!(view.voters, ids(&[1, 3, 4]));
}

#[test]
fn a_cluster_in_which_all_are_drained_goes_on_as_if_none_was() {
    let mut view = at_rest(1, &[1, 2, 3]);
    let before = view.clone();
    view.draining = ids(&[1, 2, 3]);
    assert_eq!(play(&mut view), []);
    assert_eq!((view.leader, view.voters), (before.leader, before.voters));
}

#[test]
fn a_leader_that_was_chosen_leads_whenever_it_can() {
    for chosen in 1..=3 {
        let mut view = at_rest(1, &[1, 2, 3]);
        view.chosen = Some(NodeId(chosen));
        play(&mut view);
        assert_eq!(view.leader, NodeId(chosen));
        view.draining = ids(&[chosen]);
        play(&mut view);
        assert_ne!(view.leader, NodeId(chosen), "a drained one is not chosen");
    }
    let mut view = at_rest(1, &[1, 2, 3]);
    view.chosen = Some(NodeId(9));
    assert_eq!(play(&mut view), [], "nor one that does not vote");
}
