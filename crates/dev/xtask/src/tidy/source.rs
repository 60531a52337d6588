//! A Rust file, as the rules look at it: code apart from comments and strings, tests apart from the rest.
//!
//! This is a lexer and no more. It knows where comments, strings and braces are, which is enough to find functions,
//! modules and tests in formatted code that compiles.

use std::ops::Range;

/// A Rust file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the root, with `/` between parts.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text with comments and the insides of strings blanked; the same length, the same lines.
    pub(crate) code: String,
    /// The text with everything but comments blanked.
    pub(crate) comments: String,
    /// Every function with a body, in the order they begin.
    pub(crate) functions: Vec<Function>,
    /// Every test function.
    pub(crate) tests: Vec<Test>,
    /// For each line whether it belongs to tests.
    test_lines: Vec<bool>,
    /// Modules that are declared here for tests only.
    test_modules: Vec<String>,
    line_starts: Vec<usize>,
}

/// A function with a body.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// Lines, counted from one; the last one is included.
    pub(crate) first_line: usize,
    pub(crate) last_line: usize,
}

/// A test function.
#[derive(Debug)]
pub(crate) struct Test {
    /// The modules inside the file that it stands in, then its name, with `::` between.
    pub(crate) name: String,
}

impl Source {
    /// Takes a file apart.
    pub(crate) fn read(path: &str, text: &str) -> Source {
        let (code, comments) = separate(text);
        let line_starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        let mut source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
            code,
            comments,
            functions: Vec::new(),
            tests: Vec::new(),
            test_lines: Vec::new(),
            test_modules: Vec::new(),
            line_starts,
        };
        source.test_lines = vec![is_test_path(path); text.lines().count()];
        source.find_functions();
        source.find_tests();
        source
    }

    /// Whether a program wrote this file.
    pub(crate) fn is_generated(&self) -> bool {
        self.path.contains("/generated/")
    }

    /// Whether a line, counted from one, belongs to tests.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.test_lines.get(line - 1).copied().unwrap_or(false)
    }

    /// Whether a line of the file, counted from one, belongs to a function whose name `wanted` accepts.
    pub(crate) fn is_inside(&self, line: usize, wanted: impl Fn(&str) -> bool) -> bool {
        self.functions
            .iter()
            .any(|function| (function.first_line..=function.last_line).contains(&line) && wanted(&function.name))
    }

    /// How many lines do not belong to tests.
    pub(crate) fn lines_without_tests(&self) -> usize {
        self.test_lines.iter().filter(|is_test| !**is_test).count()
    }

    /// The line of a byte, counted from one.
    pub(crate) fn line_of(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    /// The module path of a test as the test runner shows it, without the crate.
    pub(crate) fn module_path(&self) -> String {
        let inside = ["/src/", "/tests/"]
            .iter()
            .filter_map(|folder| self.path.find(folder).map(|at| at + folder.len()));
        let path = inside.min().map_or(self.path.as_str(), |at| &self.path[at..]);
        let path = path.strip_suffix(".rs").unwrap_or(path);
        let parts: Vec<&str> = path.split('/').filter(|part| !["main", "lib"].contains(part)).collect();
        parts.join("::")
    }

    fn find_functions(&mut self) {
        let mut functions = Vec::new();
        for (at, word) in identifiers(&self.code) {
            if word != "fn" {
                continue;
            }
            let rest = &self.code[at + 2..];
            let name_at = at + 2 + (rest.len() - rest.trim_start().len());
            let name = identifier_at(&self.code, name_at);
            let Some(body) = body(&self.code, name_at + name.len()) else {
                continue;
            };
            if !name.is_empty() && self.code.as_bytes()[body.start] == b'{' {
                functions.push(Function {
                    name: name.to_owned(),
                    first_line: self.line_of(at),
                    last_line: self.line_of(body.end - 1),
                });
            }
        }
        self.functions = functions;
    }

    fn find_tests(&mut self) {
        let modules = self.inline_modules();
        for (at, _) in self.code.clone().match_indices("#[") {
            let Some(end) = matching(&self.code, at + 1) else {
                continue;
            };
            let attribute: String = self.text[at + 2..end].split_whitespace().collect();
            let is_test = is_test_attribute(&attribute);
            if !is_test && !attribute.starts_with("cfg(test)") && !attribute.starts_with("cfg(all(test,") {
                continue;
            }
            let item = item_after(&self.code, end + 1);
            let (first, last) = (self.line_of(at), self.line_of(item.end.max(at + 1) - 1));
            for line in first..=last {
                if let Some(flag) = self.test_lines.get_mut(line - 1) {
                    *flag = true;
                }
            }
            let mut words = identifiers(&self.code[item.clone()]).map(|(_, word)| word);
            let wanted = if is_test { "fn" } else { "mod" };
            let name = words
                .find(|word| *word == wanted)
                .and_then(|_| words.next())
                .unwrap_or_default()
                .to_owned();
            if is_test && !name.is_empty() {
                let around = modules
                    .iter()
                    .filter(|(range, _)| range.contains(&at))
                    .map(|(_, module)| module.as_str());
                let path: Vec<&str> = around.chain([name.as_str()]).collect();
                self.tests.push(Test { name: path.join("::") });
            } else if self.code[item].ends_with(';') && !name.is_empty() {
                self.test_modules.push(name);
            }
        }
    }

    /// Modules with their body in this file, outer ones first.
    fn inline_modules(&self) -> Vec<(Range<usize>, String)> {
        let mut modules = Vec::new();
        for (at, word) in identifiers(&self.code) {
            if word != "mod" {
                continue;
            }
            let rest = &self.code[at + 3..];
            let name_at = at + 3 + (rest.len() - rest.trim_start().len());
            let name = identifier_at(&self.code, name_at);
            let after = self.code[name_at + name.len()..].trim_start();
            if after.starts_with('{')
                && let Some(range) = body(&self.code, name_at + name.len())
            {
                modules.push((range, name.to_owned()));
            }
        }
        modules
    }
}

/// Marks files whose module is declared for tests only.
pub(crate) fn spread_test_modules(sources: &mut [Source]) {
    let mut folders = Vec::new();
    for source in sources.iter() {
        let (folder, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
        let stem = file.trim_end_matches(".rs");
        let own = if ["lib", "main"].contains(&stem) {
            folder.to_owned()
        } else {
            format!("{folder}/{stem}")
        };
        folders.extend(source.test_modules.iter().map(|module| format!("{own}/{module}")));
    }
    for source in sources {
        let is_test = folders.iter().any(|folder| {
            source
                .path
                .strip_prefix(folder.as_str())
                .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        });
        if is_test {
            source.test_lines.fill(true);
        }
    }
}

/// Whether everything in the file is for tests, by where it is.
fn is_test_path(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').any(|part| part == "tests")
}

/// Whether an attribute without blanks makes a test of a function: `test`, `tokio::test(…)`.
fn is_test_attribute(attribute: &str) -> bool {
    let name = attribute.split('(').next().unwrap_or_default();
    name.rsplit("::").next() == Some("test")
}

/// Every identifier and keyword with its offset.
pub(crate) fn identifiers(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut position = 0;
    std::iter::from_fn(move || {
        let begin = position + code[position..].find(is_identifier)?;
        let word = identifier_at(code, begin);
        position = begin + word.len();
        Some((begin, word))
    })
}

/// Whether a character can stand in an identifier.
pub(crate) fn is_identifier(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn identifier_at(code: &str, at: usize) -> &str {
    let rest = &code[at..];
    &rest[..rest.find(|character| !is_identifier(character)).unwrap_or(rest.len())]
}

/// The offset of the bracket that closes the one at `open`.
pub(crate) fn matching(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in code.as_bytes()[open..].iter().enumerate() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(open + offset);
                }
            }
            _ => {}
        }
    }
    None
}

/// From the end of an item's name: its body with the braces, or the `;` that stands for it.
fn body(code: &str, from: usize) -> Option<Range<usize>> {
    let bytes = code.as_bytes();
    let mut position = from;
    while position < bytes.len() {
        match bytes[position] {
            b'{' => return matching(code, position).map(|end| position..end + 1),
            b';' => return Some(position..position + 1),
            b'(' | b'[' => position = matching(code, position)?,
            b')' | b']' | b'}' => return None,
            _ => {}
        }
        position += 1;
    }
    None
}

/// The item that follows an attribute: further attributes, and all up to its end.
fn item_after(code: &str, from: usize) -> Range<usize> {
    let mut begin = from;
    loop {
        begin += code[begin..].len() - code[begin..].trim_start().len();
        if !code[begin..].starts_with("#[") {
            break;
        }
        let Some(end) = matching(code, begin + 1) else {
            break;
        };
        begin = end + 1;
    }
    let is_item = [
        "pub", "fn", "async", "unsafe", "const", "static", "impl", "mod", "struct", "enum", "trait", "use",
    ]
    .contains(&identifier_at(code, begin));
    let is_item = is_item || ["type", "extern", "macro_rules", "union"].contains(&identifier_at(code, begin));
    let end = if is_item {
        body(code, begin).map_or(begin, |range| range.end)
    } else {
        // A field, a variant, an arm or a statement.
        let end = code[begin..]
            .find([',', ';', '{', '}'])
            .map_or(code.len(), |at| begin + at);
        if code[end..].starts_with('{') {
            matching(code, end).unwrap_or(end)
        } else {
            end
        }
    };
    begin..end
}

/// Code and comments, each with the other blanked.
fn separate(text: &str) -> (String, String) {
    let bytes = text.as_bytes();
    let mut code: Vec<u8> = bytes
        .iter()
        .map(|byte| if *byte == b'\n' { b'\n' } else { b' ' })
        .collect();
    let mut comments = code.clone();
    let mut position = 0;
    while position < bytes.len() {
        let end = token_end(text, position);
        let token = &bytes[position..end];
        if token.starts_with(b"//") || token.starts_with(b"/*") {
            comments[position..end].copy_from_slice(token);
        } else if let Some(inner) = literal_inside(token) {
            code[position..position + inner.start].copy_from_slice(&token[..inner.start]);
            code[position + inner.end..end].copy_from_slice(&token[inner.end..]);
        } else {
            code[position..end].copy_from_slice(token);
        }
        position = end;
    }
    let whole = "tokens begin and end between characters";
    (
        String::from_utf8(code).expect(whole),
        String::from_utf8(comments).expect(whole),
    )
}

/// What stands between the quotes of a literal; `None` when it is not one.
fn literal_inside(token: &[u8]) -> Option<Range<usize>> {
    let quote = token.iter().position(|byte| *byte == b'"' || *byte == b'\'')?;
    let last = token.iter().rposition(|byte| *byte == b'"' || *byte == b'\'')?;
    (last > quote).then_some(quote + 1..last)
}

/// The end of the comment, literal, word or character that begins at `at`.
fn token_end(text: &str, at: usize) -> usize {
    let rest = &text[at..];
    let first = rest.chars().next().map_or(1, char::len_utf8);
    if rest.starts_with("//") {
        return at + rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return at + block_comment_length(rest);
    }
    if rest.starts_with('"') {
        return at + string_length(rest);
    }
    if rest.starts_with('\'') {
        return at + quote_length(rest);
    }
    let word = identifier_at(text, at);
    if word.is_empty() {
        return at + first;
    }
    let after = at + word.len();
    let following = &text[after..];
    match word {
        "r" | "br" | "cr" if raw_string_length(following).is_some() => {
            after + raw_string_length(following).unwrap_or_default()
        }
        "b" | "c" if following.starts_with('"') => after + string_length(following),
        "b" if following.starts_with('\'') => after + quote_length(following),
        _ => after,
    }
}

fn block_comment_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut depth, mut position) = (0_usize, 0);
    while position < bytes.len() {
        if bytes[position..].starts_with(b"/*") {
            depth += 1;
            position += 2;
        } else if bytes[position..].starts_with(b"*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                return position;
            }
        } else {
            position += 1;
        }
    }
    bytes.len()
}

fn string_length(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut position = 1;
    while position < bytes.len() {
        match bytes[position] {
            b'\\' => position += 2,
            b'"' => return position + 1,
            _ => position += 1,
        }
    }
    bytes.len()
}

fn raw_string_length(rest: &str) -> Option<usize> {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let inside = rest[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    Some(hashes + 1 + inside.find(&close).map_or(inside.len(), |at| at + close.len()))
}

/// A character literal, or the quote of a lifetime.
fn quote_length(rest: &str) -> usize {
    let mut characters = rest.char_indices().skip(1);
    match characters.next() {
        Some((_, '\\')) => {
            // The escaped character is never the end, even when it is a quote.
            let from = 3.min(rest.len());
            rest.get(from..)
                .and_then(|tail| tail.find('\''))
                .map_or(rest.len(), |at| from + at + 1)
        }
        Some(_) => match characters.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}

#[cfg(test)]
mod tests;
