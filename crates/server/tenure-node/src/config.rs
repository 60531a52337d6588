//! What a node is told before it starts. A setting is a question that we did not answer: there are few.

use std::net::SocketAddr;
use std::path::PathBuf;

/// How many home groups a cluster has that was founded by `dev`.
pub const HOME_GROUPS_DEV: u32 = 1;
/// How many home groups a cluster has that was founded by `start`.
pub const HOME_GROUPS_START: u32 = 8;
/// No cluster has more home groups: each costs every node memory and heartbeats.
pub const HOME_GROUPS_MAX: u32 = 1_024;

/// Fewer entries are not kept of a group's log: those are under way to replicas that follow.
pub const LOG_ENTRIES_KEPT_MIN: u64 = 64;
/// Nor more: each takes memory and room on the disk.
pub const LOG_ENTRIES_KEPT_MAX: u64 = 1_000_000;

/// How many connections a node takes, if there are file descriptors for them.
pub const CONNECTIONS_MAX: usize = 10_000;

/// What a node is told before it starts.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The folder that holds everything that it must not forget.
    pub data_dir: PathBuf,
    /// The one address: gRPC, HTTP and node to node. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where others reach it, if that is not where it listens.
    pub advertise: Option<String>,
    /// Nodes of the cluster to join, as `HOST:PORT`. None: a fresh folder founds a cluster. Without effect on a folder in
    /// use.
    pub join: Vec<String>,
    /// How many home groups to found a cluster with. Without effect on a folder in use.
    pub home_groups: u32,
    /// How many connections it takes at once; more are closed at once. Each needs a file descriptor, and the log and
    /// the state must never want for one.
    pub connections_max: usize,
    /// Bytes of the disk that are kept free: below that whatever grows is refused. `None`: 256 MiB, and of a disk under
    /// 1 GiB a quarter. `Some(0)` switches it off.
    pub reserve_bytes: Option<u64>,
    /// How many entries of each group's log are kept for replicas that are behind; one that lacks more gets a snapshot.
    /// `None`: 10,000.
    pub log_entries_kept: Option<u64>,
    /// How long a file of the log is. `None`: 32 MiB. For nodes whose disk is memory.
    pub log_segment_bytes: Option<u64>,
    /// Allows an address that other machines reach although nothing there is authenticated or encrypted.
    pub insecure: bool,
}

/// A node cannot start with these settings. Nothing was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Whoever reaches the address could do anything.
    #[error(
        "{listen} can be reached from other machines, and there is no authentication yet: listen on 127.0.0.1, or use `tenure start` with --insecure"
    )]
    NotLoopback {
        /// The address.
        listen: SocketAddr,
    },
    /// No other node could reach it.
    #[error("{listen} is every address of this machine, and other nodes need one: give it with --advertise HOST:PORT")]
    NoAddress {
        /// The address.
        listen: SocketAddr,
    },
    /// The number of home groups is out of bounds.
    #[error("home_groups is {asked}: it must be from 1 to {HOME_GROUPS_MAX}")]
    HomeGroups {
        /// What was asked for.
        asked: u32,
    },
    /// The number of entries that are kept is out of bounds.
    #[error("log_entries_kept is {asked}: it must be from {LOG_ENTRIES_KEPT_MIN} to {LOG_ENTRIES_KEPT_MAX}")]
    LogEntriesKept {
        /// What was asked for.
        asked: u64,
    },
}

impl NodeConfig {
    /// Checks the settings against each other.
    ///
    /// # Errors
    /// [`ConfigError`] with the remedy.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !self.listen.ip().is_loopback() && !self.insecure {
            return Err(ConfigError::NotLoopback { listen: self.listen });
        }
        if !self.join.is_empty() && self.advertise.is_none() && self.listen.ip().is_unspecified() {
            return Err(ConfigError::NoAddress { listen: self.listen });
        }
        if !(1..=HOME_GROUPS_MAX).contains(&self.home_groups) {
            return Err(ConfigError::HomeGroups {
                asked: self.home_groups,
            });
        }
        if let Some(asked) = self.log_entries_kept
            && !(LOG_ENTRIES_KEPT_MIN..=LOG_ENTRIES_KEPT_MAX).contains(&asked)
        {
            return Err(ConfigError::LogEntriesKept { asked });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str, insecure: bool) -> NodeConfig {
        NodeConfig {
            data_dir: PathBuf::from("unused"),
            listen: listen.parse().expect("a socket address"),
            advertise: None,
            join: Vec::new(),
            home_groups: HOME_GROUPS_DEV,
            connections_max: CONNECTIONS_MAX,
            reserve_bytes: None,
            log_entries_kept: None,
            log_segment_bytes: None,
            insecure,
        }
    }

    #[test]
    fn an_address_beyond_loopback_needs_the_word_insecure() {
        assert_eq!(config("127.0.0.1:0", false).check(), Ok(()));
        assert_eq!(config("[::1]:0", false).check(), Ok(()));
        assert!(matches!(
            config("0.0.0.0:0", false).check(),
            Err(ConfigError::NotLoopback { .. })
        ));
        assert!(matches!(
            config("10.1.2.3:7400", false).check(),
            Err(ConfigError::NotLoopback { .. })
        ));
        assert_eq!(config("0.0.0.0:0", true).check(), Ok(()));
    }

    #[test]
    fn a_node_that_joins_says_where_it_is_reached() {
        let mut settings = config("0.0.0.0:7400", true);
        settings.join = vec!["127.0.0.1:7401".to_owned()];
        assert!(matches!(settings.check(), Err(ConfigError::NoAddress { .. })));
        settings.advertise = Some("node-2:7400".to_owned());
        assert_eq!(settings.check(), Ok(()));
    }

    #[test]
    fn the_number_of_entries_that_are_kept_is_bounded() {
        let mut settings = config("127.0.0.1:0", false);
        for asked in [LOG_ENTRIES_KEPT_MIN, LOG_ENTRIES_KEPT_MAX] {
            settings.log_entries_kept = Some(asked);
            assert_eq!(settings.check(), Ok(()));
        }
        for asked in [LOG_ENTRIES_KEPT_MIN - 1, LOG_ENTRIES_KEPT_MAX + 1] {
            settings.log_entries_kept = Some(asked);
            assert_eq!(settings.check(), Err(ConfigError::LogEntriesKept { asked }));
        }
    }

    #[test]
    fn the_number_of_home_groups_is_bounded() {
        let mut settings = config("127.0.0.1:0", false);
        settings.home_groups = 0;
        assert_eq!(settings.check(), Err(ConfigError::HomeGroups { asked: 0 }));
        settings.home_groups = HOME_GROUPS_MAX + 1;
        assert_eq!(
            settings.check(),
            Err(ConfigError::HomeGroups {
                asked: HOME_GROUPS_MAX + 1
            })
        );
    }
}
