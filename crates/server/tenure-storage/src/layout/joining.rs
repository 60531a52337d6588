//! The file `JOINING`: what a node that was let into a cluster was told, kept until its own replica of the system group
//! knows better, and before that the folder with which it asks, so that asking again after a crash is answered the same.

const FIRST_LINE: &str = "tenure joining 1";

/// What a node was told when it was let into a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    /// The folder, chosen before the node first asked.
    pub folder: u128,
    /// How many home groups the cluster has; 0: the node was not let in yet.
    pub home_groups: u32,
    /// The nodes, in order.
    pub nodes: Vec<JoinedNode>,
}

/// A node, as another one was told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedNode {
    /// Its id.
    pub node: u64,
    /// Its folder, if that was told.
    pub folder: Option<u128>,
    /// Where it is reached. It has no white space.
    pub address: String,
}

impl Joining {
    pub(super) fn encode(&self) -> String {
        let mut body = format!(
            "{FIRST_LINE}\nfolder {:032x}\nhome-groups {}\n",
            self.folder, self.home_groups
        );
        for node in &self.nodes {
            let folder = node
                .folder
                .map_or_else(|| "-".to_owned(), |folder| format!("{folder:032x}"));
            body.push_str(&format!("node {} {folder} {}\n", node.node, node.address));
        }
        let sum = crc32c::crc32c(body.as_bytes());
        format!("{body}crc32c {sum:08x}\n")
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Joining, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
        let unreadable = "a line is missing or unreadable";
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err("its first line is unknown");
        }
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let folder = field("folder").and_then(|hex| u128::from_str_radix(hex, 16).ok());
        let home_groups = field("home-groups").and_then(|number| number.parse().ok());
        let nodes = lines.filter_map(|line| line.strip_prefix("node ")).map(node);
        let joining = Joining {
            folder: folder.ok_or(unreadable)?,
            home_groups: home_groups.ok_or(unreadable)?,
            nodes: nodes.collect::<Option<_>>().ok_or(unreadable)?,
        };
        // One way to write it: a file that differs in any byte is not what was written.
        if joining.encode() == text {
            Ok(joining)
        } else {
            Err("its checksum does not fit")
        }
    }
}

fn node(line: &str) -> Option<JoinedNode> {
    let mut words = line.split(' ');
    let (node, folder, address) = (words.next()?, words.next()?, words.next()?);
    let folder = match folder {
        "-" => None,
        hex => Some(u128::from_str_radix(hex, 16).ok()?),
    };
    Some(JoinedNode {
        node: node.parse().ok()?,
        folder,
        address: address.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joining() -> Joining {
        let node = |node, folder, address: &str| JoinedNode {
            node,
            folder,
            address: address.to_owned(),
        };
        Joining {
            folder: 7,
            home_groups: 8,
            nodes: vec![node(1, Some(u128::MAX), "a:1"), node(2, None, "[::1]:2")],
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let asking = Joining {
            home_groups: 0,
            nodes: Vec::new(),
            ..joining()
        };
        for joining in [joining(), asking] {
            assert_eq!(Joining::decode(joining.encode().as_bytes()), Ok(joining));
        }
    }

    #[test]
    fn a_file_that_differs_in_any_byte_is_refused() {
        let written = joining().encode().into_bytes();
        for at in 0..written.len() {
            let mut other = written.clone();
            other[at] ^= 1;
            assert!(Joining::decode(&other).is_err(), "byte {at}");
            assert!(Joining::decode(&written[..at]).is_err(), "cut at {at}");
        }
    }
}
