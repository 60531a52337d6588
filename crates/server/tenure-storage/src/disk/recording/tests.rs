//! What a kill, a power loss, a failed sync and a full disk leave of a file.

use std::path::Path;

use super::*;

/// Keeps nothing that was not synced.
fn nothing(_bound: u64) -> u64 {
    0
}

fn content(disk: &RecordingDisk, name: &str) -> Option<Vec<u8>> {
    crate::disk::read_file(disk, Path::new(name), 1 << 20).expect("a disk without faults reads")
}

fn disk_with_file(bytes: &[u8]) -> (RecordingDisk, Box<dyn DiskFile>) {
    let disk = RecordingDisk::new();
    disk.create_dir_all(Path::new("d")).unwrap();
    let file = disk.open(Path::new("d/f"), OpenMode::Create).unwrap();
    file.write_at(0, bytes).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("d")).unwrap();
    (disk, file)
}

#[test]
fn a_write_without_a_sync_is_lost_with_the_power_but_not_with_the_process() {
    let (disk, file) = disk_with_file(b"old");
    file.write_at(0, b"new").unwrap();
    assert_eq!(content(&disk, "d/f").unwrap(), b"new");
    let killed = disk.after_kill();
    assert_eq!(content(&killed, "d/f").unwrap(), b"new");
    assert_eq!(content(&killed.after_power_loss(&mut nothing), "d/f").unwrap(), b"old");
    file.sync_data().unwrap();
    assert_eq!(content(&disk.after_power_loss(&mut nothing), "d/f").unwrap(), b"new");
}

#[test]
fn a_name_without_a_sync_of_its_folder_is_lost_with_the_power() {
    let (disk, file) = disk_with_file(b"x");
    disk.rename(Path::new("d/f"), Path::new("d/g")).unwrap();
    assert_eq!(content(&disk, "d/f"), None);
    let lost = disk.after_power_loss(&mut nothing);
    assert_eq!(
        (content(&lost, "d/f"), content(&lost, "d/g")),
        (Some(b"x".to_vec()), None)
    );
    disk.sync_dir(Path::new("d")).unwrap();
    let kept = disk.after_power_loss(&mut nothing);
    assert_eq!(
        (content(&kept, "d/f"), content(&kept, "d/g")),
        (None, Some(b"x".to_vec()))
    );
    disk.remove(Path::new("d/g")).unwrap();
    assert_eq!(content(&disk, "d/g"), None);
    let mut buffer = [0; 1];
    assert_eq!(file.read_at(0, &mut buffer).unwrap(), 1, "an open file stays readable");
    assert_eq!(disk.list(Path::new("d")).unwrap(), Vec::<String>::new());
}

#[test]
fn a_failed_sync_leaves_writes_that_no_later_sync_saves() {
    let (disk, file) = disk_with_file(b"old old");
    file.write_at(0, b"new").unwrap();
    disk.fail_sync_after(0);
    file.sync_data().unwrap_err();
    file.sync_data().unwrap();
    assert_eq!(content(&disk, "d/f").unwrap(), b"new old");
    assert_eq!(
        content(&disk.after_power_loss(&mut nothing), "d/f").unwrap(),
        b"old old"
    );
    file.write_at(2, b"w new").unwrap();
    file.sync_data().unwrap();
    assert_eq!(
        content(&disk.after_power_loss(&mut nothing), "d/f").unwrap(),
        b"olw new"
    );
    assert_eq!(content(&disk.after_power_loss(&mut |_| 1), "d/f").unwrap(), b"new new");
}

#[test]
fn every_recorded_point_can_be_seen_again_with_the_next_write_torn() {
    let (disk, file) = disk_with_file(b"....");
    disk.start_recording();
    file.write_at(0, b"ab").unwrap();
    file.write_at(2, b"cd").unwrap();
    file.sync_data().unwrap();
    assert_eq!(disk.events(), 3);
    assert_eq!(content(&disk.at(0, None), "d/f").unwrap(), b"....");
    assert_eq!(content(&disk.at(1, Some(1)), "d/f").unwrap(), b"abc.");
    assert_eq!(
        content(&disk.at(2, None).after_power_loss(&mut nothing), "d/f").unwrap(),
        b"...."
    );
    assert_eq!(
        content(&disk.at(3, None).after_power_loss(&mut nothing), "d/f").unwrap(),
        b"abcd"
    );
}

#[test]
fn a_full_disk_writes_what_fits_and_says_so() {
    let (disk, file) = disk_with_file(b"1234");
    disk.set_capacity(Some(6));
    assert_eq!(disk.free_space(Path::new("d")).unwrap(), 2);
    let error = file.write_at(4, b"5678").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(content(&disk, "d/f").unwrap(), b"123456");
    file.write_at(0, b"abcdef").unwrap();
    assert_eq!(file.allocate(7).unwrap_err().kind(), io::ErrorKind::StorageFull);
}
