//! Answers as the systems give them.

use super::*;

const ADDRESSES: [&str; 2] = ["127.0.0.1:1", "127.0.0.1:2"];

#[test]
fn the_home_group_is_that_of_the_namespace_that_is_measured_in() {
    let rows = concat!(
        "{\"tenant\":\"default\",\"namespace\":\"other\",\"home_group\":1}\n",
        "{\"tenant\":\"default\",\"namespace\":\"default\",\"home_group\":2}\n"
    );
    assert_eq!(home_group(rows), Some(2));
    assert_eq!(home_group(""), None);
}

#[test]
fn our_leader_is_known_once_every_group_is_on_every_node() {
    let status = |voters: &str| {
        format!(
            "{{\"nodes\":[{{\"node\":\"1\",\"address\":\"127.0.0.1:1\"}},{{\"node\":\"7\",\"address\":\"127.0.0.1:2\"}}],\
             \"groups\":[{{\"group\":0,\"leader\":\"1\",\"voters\":[\"1\",\"7\"]}},\
             {{\"group\":2,\"leader\":\"7\",\"voters\":{voters}}}]}}"
        )
    };
    assert_eq!(place_of_leader(&status("[\"1\",\"7\"]"), 2, &ADDRESSES), Some(1));
    assert_eq!(place_of_leader(&status("[\"1\",\"7\"]"), 0, &ADDRESSES), Some(0));
    assert_eq!(place_of_leader(&status("[\"7\"]"), 2, &ADDRESSES), None);
    assert_eq!(place_of_leader("what?", 2, &ADDRESSES), None);
}

#[test]
fn the_leader_of_etcd_names_itself() {
    let answer = |address: &str, member: u64, leader: u64| {
        format!(
            "{{\"Endpoint\":\"{address}\",\"Status\":{{\"header\":{{\"cluster_id\":3,\"member_id\":{member}}},\
             \"version\":\"3.4.23\",\"leader\":{leader}}}}}"
        )
    };
    let ids = [16_843_682_982_561_713_839, 5];
    let both = |leader| {
        format!(
            "[{},{}]",
            answer(ADDRESSES[0], ids[0], leader),
            answer(ADDRESSES[1], ids[1], leader)
        )
    };
    assert_eq!(place_of_etcd(&both(ids[0]), &ADDRESSES), Some(0));
    assert_eq!(place_of_etcd(&both(ids[1]), &ADDRESSES), Some(1));
    assert_eq!(place_of_etcd(&both(0), &ADDRESSES), None, "an election is under way");
    let one = format!("[{}]", answer(ADDRESSES[0], ids[0], ids[0]));
    assert_eq!(place_of_etcd(&one, &ADDRESSES), None, "a node is missing");
}

#[test]
fn the_mode_of_a_node_is_read() {
    assert_eq!(
        mode("Zxid: 0x0\nMode: leader\nNode count: 5\n").as_deref(),
        Some("leader")
    );
    assert_eq!(
        mode("This ZooKeeper instance is not currently serving requests\n"),
        None
    );
}
