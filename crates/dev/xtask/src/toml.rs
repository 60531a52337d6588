//! As much of TOML as our own settings files use.
//!
//! Tables, arrays of tables, strings, whole numbers, booleans, arrays and inline tables. Dates, floats, dotted keys
//! and multi-line strings are refused rather than misread: a full parser would be built before everything else.

use std::collections::BTreeMap;

/// A table: names and their values.
pub(crate) type Table = BTreeMap<String, Value>;

/// A value of a settings file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
    Flag(bool),
    List(Vec<Value>),
    Table(Table),
}

impl Value {
    /// The text, if it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The elements, if it is a list.
    pub(crate) fn list(&self) -> Option<&[Value]> {
        match self {
            Value::List(values) => Some(values),
            _ => None,
        }
    }

    /// The entry of that name, if it is a table that has one.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Table(table) => table.get(name),
            _ => None,
        }
    }
}

/// Reads a whole file. The error names the line.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    let mut parser = Parser { text, position: 0 };
    let mut root = Table::new();
    let mut current: Vec<String> = Vec::new();
    loop {
        parser.skip_space_and_lines();
        let Some(next) = parser.peek() else {
            return Ok(Value::Table(root));
        };
        if next == '[' {
            let is_list = parser.rest().starts_with("[[");
            current = parser.header(is_list)?;
            let parser_line = parser.line();
            open(&mut root, &current, is_list).ok_or_else(|| format!("line {parser_line}: not a table"))?;
        } else {
            let line = parser.line();
            let (name, value) = parser.entry()?;
            parser.end_of_line()?;
            let table = open(&mut root, &current, false).ok_or_else(|| format!("line {line}: not a table"))?;
            if table.insert(name.clone(), value).is_some() {
                return Err(format!("line {line}: `{name}` is there twice"));
            }
        }
    }
}

/// The table at a path, made when it is missing; with `append`, a new last element of the list at that path.
fn open<'a>(root: &'a mut Table, path: &[String], append: bool) -> Option<&'a mut Table> {
    let mut table = root;
    for (depth, name) in path.iter().enumerate() {
        let is_last = depth + 1 == path.len();
        let empty = if append && is_last {
            Value::List(Vec::new())
        } else {
            Value::Table(Table::new())
        };
        table = match table.entry(name.clone()).or_insert(empty) {
            Value::Table(inner) => inner,
            Value::List(values) => {
                if append && is_last {
                    values.push(Value::Table(Table::new()));
                }
                match values.last_mut() {
                    Some(Value::Table(inner)) => inner,
                    _ => return None,
                }
            }
            _ => return None,
        };
    }
    Some(table)
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn line(&self) -> usize {
        self.text[..self.position].matches('\n').count() + 1
    }

    fn wrong<T>(&self, message: &str) -> Result<T, String> {
        Err(format!("line {}: {message}", self.line()))
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if !self.rest().starts_with(token) {
            return self.wrong(&format!("`{token}` is missing"));
        }
        self.position += token.len();
        Ok(())
    }

    fn skip_space(&mut self) {
        self.position += self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
    }

    /// Blanks, line ends and comments.
    fn skip_space_and_lines(&mut self) {
        loop {
            self.position += self.rest().len() - self.rest().trim_start().len();
            if !self.rest().starts_with('#') {
                return;
            }
            self.position += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn end_of_line(&mut self) -> Result<(), String> {
        self.skip_space();
        match self.peek() {
            None | Some('\n' | '\r' | '#') => Ok(()),
            Some(_) => self.wrong("something follows the value"),
        }
    }

    fn header(&mut self, is_list: bool) -> Result<Vec<String>, String> {
        let (begin, end) = if is_list { ("[[", "]]") } else { ("[", "]") };
        self.expect(begin)?;
        let mut path = Vec::new();
        loop {
            self.skip_space();
            path.push(self.name()?);
            self.skip_space();
            if self.peek() != Some('.') {
                break;
            }
            self.expect(".")?;
        }
        self.expect(end)?;
        self.end_of_line()?;
        Ok(path)
    }

    fn name(&mut self) -> Result<String, String> {
        if let Some('"' | '\'') = self.peek() {
            return self.string();
        }
        let rest = self.rest();
        let length = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_')
            .unwrap_or(rest.len());
        if length == 0 {
            return self.wrong("a name is missing");
        }
        self.position += length;
        Ok(rest[..length].to_owned())
    }

    fn entry(&mut self) -> Result<(String, Value), String> {
        let name = self.name()?;
        self.skip_space();
        self.expect("=")?;
        self.skip_space();
        Ok((name, self.value()?))
    }

    fn value(&mut self) -> Result<Value, String> {
        match self.peek() {
            Some('"' | '\'') => self.string().map(Value::Text),
            Some('[') => self.items("[", "]", Self::value).map(Value::List),
            Some('{') => {
                let entries = self.items("{", "}", Self::entry)?;
                Ok(Value::Table(entries.into_iter().collect()))
            }
            _ => {
                let rest = self.rest();
                let length = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_')
                    .unwrap_or(rest.len());
                let word = &rest[..length];
                let value = match word {
                    "true" => Value::Flag(true),
                    "false" => Value::Flag(false),
                    _ => match word.replace('_', "").parse() {
                        Ok(number) => Value::Number(number),
                        Err(_) => return self.wrong(&format!("cannot read the value `{word}`")),
                    },
                };
                self.position += length;
                Ok(value)
            }
        }
    }

    /// Elements between brackets, with commas; the last comma may stay.
    fn items<T>(
        &mut self,
        begin: &str,
        end: &str,
        mut element: impl FnMut(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        self.expect(begin)?;
        let mut elements = Vec::new();
        loop {
            self.skip_space_and_lines();
            if self.rest().starts_with(end) {
                break;
            }
            elements.push(element(self)?);
            self.skip_space_and_lines();
            if self.peek() != Some(',') {
                break;
            }
            self.expect(",")?;
        }
        self.expect(end)?;
        Ok(elements)
    }

    fn string(&mut self) -> Result<String, String> {
        let quote = self.peek().unwrap_or('"');
        if self.rest().starts_with("\"\"\"") || self.rest().starts_with("'''") {
            return self.wrong("a string of many lines is not read here");
        }
        self.position += 1;
        let mut text = String::new();
        let mut characters = self.rest().char_indices();
        while let Some((offset, character)) = characters.next() {
            match character {
                '\n' => break,
                _ if character == quote => {
                    self.position += offset + 1;
                    return Ok(text);
                }
                '\\' if quote == '"' => match characters.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                    _ => return self.wrong("an escape that is not read here"),
                },
                _ => text.push(character),
            }
        }
        self.wrong("the string does not end")
    }
}

#[cfg(test)]
mod tests;
