//! Versions of crates and requirements on them: `1.2.3`, `=1.2.3`, `>=1, <1.4`.

use std::cmp::Ordering;

/// A version without its build part. A pre-release comes before its release.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    numbers: [u64; 3],
    pre_release: String,
}

impl Version {
    fn read(text: &str) -> Option<Self> {
        let text = text.split('+').next()?;
        let (numbers, pre_release) = text.split_once('-').unwrap_or((text, ""));
        let mut version = Version {
            numbers: [0; 3],
            pre_release: pre_release.to_owned(),
        };
        for (index, number) in numbers.split('.').enumerate() {
            *version.numbers.get_mut(index)? = number.parse().ok()?;
        }
        Some(version)
    }

    fn compare(&self, other: &Version) -> Ordering {
        self.numbers
            .cmp(&other.numbers)
            .then_with(|| match (&*self.pre_release, &*other.pre_release) {
                (mine, theirs) if mine == theirs => Ordering::Equal,
                ("", _) => Ordering::Greater,
                (_, "") => Ordering::Less,
                (mine, theirs) => compare_pre_release(mine, theirs),
            })
    }
}

/// Part by part: numbers as numbers, so that `alpha.9` comes before `alpha.10`.
fn compare_pre_release(mine: &str, theirs: &str) -> Ordering {
    let (mut mine, mut theirs) = (mine.split('.'), theirs.split('.'));
    loop {
        let order = match (mine.next(), theirs.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(left), Some(right)) => match (left.parse::<u64>(), right.parse::<u64>()) {
                (Ok(left), Ok(right)) => left.cmp(&right),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => left.cmp(right),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Which versions are meant. All of them when nothing is said; a bare version means exactly that one.
#[derive(Debug)]
pub(crate) struct Requirement {
    bounds: Vec<(String, Version)>,
}

impl Requirement {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let mut bounds = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let number = part.trim_start_matches(['<', '>', '=']);
            let operator = &part[..part.len() - number.len()];
            if !["", "=", "<", "<=", ">", ">="].contains(&operator) {
                return Err(format!("`{operator}` is not an operator"));
            }
            let version = Version::read(number.trim()).ok_or_else(|| format!("`{number}` is not a version"))?;
            bounds.push((operator.to_owned(), version));
        }
        Ok(Requirement { bounds })
    }

    /// Whether a version is meant. A version that cannot be read is, so that it is looked at.
    pub(crate) fn covers(&self, version: &str) -> bool {
        let Some(version) = Version::read(version) else {
            return true;
        };
        self.bounds.iter().all(|(operator, bound)| {
            let order = version.compare(bound);
            match operator.as_str() {
                "<" => order == Ordering::Less,
                "<=" => order != Ordering::Greater,
                ">" => order == Ordering::Greater,
                ">=" => order != Ordering::Less,
                _ => order == Ordering::Equal,
            }
        })
    }
}
