//! A reader that gives up costs an answer, not the whole look.

use super::*;

#[test]
fn a_reader_that_gives_up_has_met_damage() {
    let folder = Path::new("state");
    let given_up = guarded(folder, || -> Result<(), StateError> {
        panic!("it met what it does not know")
    });
    match given_up {
        Err(StateError::EngineDamaged { path, what }) => {
            assert_eq!((path.as_path(), what.as_str()), (folder, "its reader gave up on it"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(guarded(folder, || Ok(7)).ok(), Some(7));
}
