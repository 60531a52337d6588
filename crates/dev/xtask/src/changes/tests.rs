//! What a note must have.

use super::*;

fn messages(text: &str) -> Vec<String> {
    note("changes/a.md", text)
        .into_iter()
        .map(|finding| finding.message)
        .collect()
}

#[test]
fn a_whole_note_passes_in_either_form() {
    assert_eq!(
        messages("# Locks\n\nWhat changed: a\nb.\n\nWho is affected: c.\n\nWhat to do: nothing.\n"),
        Vec::<String>::new()
    );
    assert_eq!(
        messages("# Locks\n\n## What changed\n\na\n\n## Who is affected\n\nb\n\n**What to do.** c\n"),
        Vec::<String>::new()
    );
}

#[test]
fn what_is_missing_is_found() {
    assert_eq!(
        messages("Locks\nWhat changed: a\nWho is affected: b\nWhat to do: c\n"),
        ["begin with `# ` and a title"]
    );
    assert_eq!(messages("# Locks\nWhat changed: a\nWhat to do: c\n").len(), 1);
    assert_eq!(
        messages("# Locks\nWhat changed:\n\nWho is affected: b\nWhat to do: c\n"),
        ["`What changed` has no answer"]
    );
    assert_eq!(messages("# Locks\n").len(), 3);
}
