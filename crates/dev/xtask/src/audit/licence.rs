//! Licence expressions: `(MIT OR Apache-2.0) AND Unicode-3.0`, and the older `MIT/Apache-2.0`.

/// Whether the licences that `allowed` accepts satisfy the expression. An expression that cannot be read is an error.
pub(crate) fn satisfied(expression: &str, allowed: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let tokens = tokens(expression);
    let mut position = 0;
    let result = either(&tokens, &mut position, allowed);
    match result {
        Some(value) if position == tokens.len() => Ok(value),
        _ => Err(format!("cannot read the licence expression `{expression}`")),
    }
}

/// The licences that an expression names.
pub(crate) fn names(expression: &str) -> Vec<String> {
    let tokens = tokens(expression);
    let mut names = Vec::new();
    let mut position = 0;
    while position < tokens.len() {
        if let Some(name) = name(&tokens, &mut position) {
            names.push(name);
        } else {
            position += 1;
        }
    }
    names
}

fn tokens(expression: &str) -> Vec<String> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

fn either(tokens: &[String], position: &mut usize, allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut value = both(tokens, position, allowed)?;
    while tokens.get(*position).is_some_and(|token| token == "OR") {
        *position += 1;
        value |= both(tokens, position, allowed)?;
    }
    Some(value)
}

fn both(tokens: &[String], position: &mut usize, allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut value = single(tokens, position, allowed)?;
    while tokens.get(*position).is_some_and(|token| token == "AND") {
        *position += 1;
        value &= single(tokens, position, allowed)?;
    }
    Some(value)
}

fn single(tokens: &[String], position: &mut usize, allowed: &dyn Fn(&str) -> bool) -> Option<bool> {
    if tokens.get(*position)? == "(" {
        *position += 1;
        let value = either(tokens, position, allowed)?;
        let closed = tokens.get(*position)? == ")";
        *position += 1;
        return closed.then_some(value);
    }
    name(tokens, position).map(|name| allowed(&name))
}

/// One licence, with its exception where it has one.
fn name(tokens: &[String], position: &mut usize) -> Option<String> {
    let token = tokens.get(*position)?;
    if ["(", ")", "OR", "AND", "WITH"].contains(&token.as_str()) {
        return None;
    }
    *position += 1;
    if tokens.get(*position).is_some_and(|next| next == "WITH") {
        let exception = tokens.get(*position + 1)?;
        *position += 2;
        return Some(format!("{token} WITH {exception}"));
    }
    Some(token.clone())
}
