//! What a refusal says to people.

use tenure_api::v1::CacheInfo;

use super::Refusal;

#[test]
fn one_shard_is_not_many() {
    let said = |shards| {
        let cache = CacheInfo {
            name: "leases".to_owned(),
            shards,
            replication: 3,
            ..CacheInfo::default()
        };
        Refusal::ExistsOtherwise { cache: Some(cache) }.to_string()
    };
    assert_eq!(said(1), "leases exists with 1 shard, replication 3, consistency quorum");
    assert_eq!(
        said(8),
        "leases exists with 8 shards, replication 3, consistency quorum"
    );
}
