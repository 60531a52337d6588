//! What is refused when, on a disk that says whatever it is told to.

use bytes::Bytes;
use tenure_core::ids::{Namespace, ObjectName};
use tenure_core::time::Span;
use tenure_storage::disk::RecordingDisk;

use super::*;

fn cache() -> ObjectName {
    ObjectName {
        namespace: Namespace {
            tenant: "acme".to_owned(),
            name: "prod".to_owned(),
        },
        name: "leases".to_owned(),
    }
}

fn put() -> Command {
    Command::Put {
        cache: cache(),
        key: Bytes::from_static(b"k"),
        value: Bytes::from_static(b"v"),
        ttl: None,
        guard: None,
        owner: None,
    }
}

fn touch() -> Command {
    Command::Touch {
        cache: cache(),
        key: Bytes::from_static(b"k"),
        ttl: Span::from_secs(1),
        guard: None,
    }
}

fn space(disk: &RecordingDisk, reserve: Option<u64>) -> Space {
    Space::open(Arc::new(disk.clone()), Path::new("/data"), reserve).expect("a disk in memory has room")
}

#[test]
fn below_the_reserve_what_grows_is_refused_and_the_rest_is_not() {
    let disk = RecordingDisk::new();
    disk.set_free_space(Some(1_000));
    let space = space(&disk, Some(1_000));
    assert_eq!(space.check(&put()), Ok(()));
    disk.set_free_space(Some(999));
    assert_eq!(space.check(&put()), Ok(()), "it has not looked yet");
    space.look(0).expect("it looks");
    let no_room = NoRoom {
        free: 999,
        reserve: 1_000,
    };
    assert_eq!(space.check(&put()), Err(no_room));
    assert_eq!(space.check_growth(), Err(no_room));
    assert_eq!(space.check(&touch()), Ok(()));
    disk.set_free_space(Some(1_000));
    space.look(0).expect("it looks");
    assert_eq!(space.check(&put()), Ok(()));
}

#[test]
fn a_small_disk_keeps_a_part_of_itself_and_a_large_one_the_default() {
    let disk = RecordingDisk::new();
    assert_eq!(space(&disk, None).reserve, RESERVE_BYTES_DEFAULT);
    disk.set_capacity(Some(400));
    assert_eq!(space(&disk, None).reserve, 100);
    assert_eq!(space(&disk, Some(0)).reserve, 0);
}

#[test]
fn without_a_reserve_nothing_is_refused() {
    let disk = RecordingDisk::new();
    disk.set_free_space(Some(0));
    assert_eq!(space(&disk, Some(0)).check(&put()), Ok(()));
}

#[test]
fn what_is_owed_is_not_there_for_others() {
    let disk = RecordingDisk::new();
    disk.set_free_space(Some(1_500));
    let space = space(&disk, Some(1_000));
    space.look(500).expect("it looks");
    assert_eq!(space.check(&put()), Ok(()));
    space.look(501).expect("it looks");
    let no_room = NoRoom {
        free: 999,
        reserve: 1_000,
    };
    assert_eq!(space.check(&put()), Err(no_room));
    assert_eq!(space.check(&touch()), Ok(()));
    assert_eq!(space.free(), 1_500, "that much is free on the disk");
    space.look(0).expect("it looks");
    assert_eq!(space.check(&put()), Ok(()));
}
