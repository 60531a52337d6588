//! Links and names that lead nowhere are found.

use super::*;

fn messages(path: &str, text: &str) -> Vec<String> {
    let paths = ["README.md", "docs/semantics.md", "docs/adr/0001-engines.md"].map(str::to_owned);
    let readme = ("README.md", format!("    {FIRST_COMMAND}\n"));
    let texts = [readme, (path, text.to_owned())];
    let sources: Vec<Source> = if path.ends_with(".rs") {
        vec![Source::read(path, text)]
    } else {
        Vec::new()
    };
    check(&texts, &paths, &sources)
        .into_iter()
        .map(|finding| finding.message)
        .collect()
}

#[test]
fn links_and_names_that_lead_somewhere_pass() {
    let text = "[a](semantics.md#locks) [b](../README.md) [c](adr) [d](https://example.org/NONE.md) [e](#here)\n\
                See docs/semantics.md, `adr/0001-engines.md` and changes/*.md; write `docs/adr/NNNN-title.md`.\n";
    assert_eq!(messages("docs/testing.md", text), Vec::<String>::new());
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    for target in ["semantic.md", "../docs/none.md", "../../README.md", "adr/0001"] {
        let found = messages("docs/testing.md", &format!("[a]({target})\n"));
        assert!(
            found.contains(&format!("the link to `{target}` leads nowhere")),
            "{target}: {found:?}"
        );
    }
}

#[test]
fn a_document_that_is_named_must_exist() {
    let name = "PLAN";
    assert_eq!(
        messages("a.toml", &format!("# see {name}.md.\n")),
        [format!("there is no `{name}.md`")]
    );
    assert_eq!(
        messages(
            "crates/x/src/a.rs",
            &format!("// see {name}.md\nlet a = \"OTHER.md\";\n")
        )
        .len(),
        1
    );
}

#[test]
fn the_readme_shows_the_first_command() {
    assert_eq!(check(&[], &[], &[]).len(), 1);
    assert_eq!(check(&[("README.md", "Tenure\n".into())], &[], &[]).len(), 1);
}
