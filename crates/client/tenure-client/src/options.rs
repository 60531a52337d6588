//! How a client is made.

use std::time::Duration;

use tonic::transport::Uri;

use tenure_api::limits::LABEL_BYTES_MAX;

use crate::client::Client;
use crate::error::Error;
use crate::requests::RequestMode;
use crate::runtime::ClientRuntime;

/// Endpoints of one client.
pub const ENDPOINTS_MAX: usize = 64;
/// The time for a call over all its attempts, if none is chosen.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// The least that can be chosen.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// Chooses what a client is like.
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `connect` or `build`"]
pub struct ClientBuilder {
    endpoints: Vec<String>,
    tenant: Option<String>,
    namespace: Option<String>,
    timeout: Option<Duration>,
    label: Option<String>,
    request_mode: RequestMode,
    wait_for_node: bool,
    only_given_endpoints: bool,
    runtime: Option<ClientRuntime>,
}

/// What was chosen, complete.
pub(crate) struct Options {
    pub(crate) endpoints: Vec<String>,
    pub(crate) tenant: String,
    pub(crate) namespace: String,
    pub(crate) timeout: Duration,
    pub(crate) label: String,
    pub(crate) request_mode: RequestMode,
    pub(crate) wait_for_node: bool,
    pub(crate) only_given_endpoints: bool,
    pub(crate) runtime: ClientRuntime,
}

impl ClientBuilder {
    /// Where nodes of the cluster are reached, each as `HOST:PORT`; they are tried in this order. One is enough to find the
    /// others, which the nodes name; but while that one is down a client that begins finds nobody.
    pub fn endpoints<T: Into<String>>(mut self, endpoints: impl IntoIterator<Item = T>) -> ClientBuilder {
        self.endpoints = endpoints.into_iter().map(Into::into).collect();
        self
    }

    /// The tenant; `default` if none is chosen.
    pub fn tenant(mut self, tenant: impl Into<String>) -> ClientBuilder {
        self.tenant = Some(tenant.into());
        self
    }

    /// The namespace within the tenant; `default` if none is chosen.
    pub fn namespace(mut self, namespace: impl Into<String>) -> ClientBuilder {
        self.namespace = Some(namespace.into());
        self
    }

    /// The time for a call over all its attempts and endpoints; 5 s if none is chosen.
    pub fn timeout(mut self, timeout: Duration) -> ClientBuilder {
        self.timeout = Some(timeout);
        self
    }

    /// What is shown of this client wherever its sessions are; host, process id and program if none is chosen. It is
    /// cut at 256 bytes.
    pub fn label(mut self, label: impl Into<String>) -> ClientBuilder {
        self.label = Some(label.into());
        self
    }

    /// How mutations are identified; by numbers of a session of the client's own if none is chosen.
    pub fn request_mode(mut self, mode: RequestMode) -> ClientBuilder {
        self.request_mode = mode;
        self
    }

    /// Keep trying for the whole time of a call even where nobody has ever been met and every endpoint refuses
    /// connections: for programs that start before their cluster. Without it such a call ends after half a second with
    /// [`Error::Unreachable`], not applied. A client that has met its cluster once always keeps trying, since a node
    /// that was there is probably on its way back; so do sessions that are kept alive, and watches that have begun.
    pub fn wait_for_node(mut self, wait: bool) -> ClientBuilder {
        self.wait_for_node = wait;
        self
    }

    /// Talk only to the endpoints that were given: not to others that the cluster names, and not to the leader unless it is
    /// one of these. For programs that want to know what a certain node says.
    pub fn only_given_endpoints(mut self, only: bool) -> ClientBuilder {
        self.only_given_endpoints = only;
        self
    }

    /// The world in which the client lives; the real one if none is chosen.
    pub fn runtime(mut self, runtime: ClientRuntime) -> ClientBuilder {
        self.runtime = Some(runtime);
        self
    }

    /// Makes the client without connecting: it connects when it is first used.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no endpoint, or one that is none.
    ///
    /// # Panics
    /// If no runtime was chosen and it is called outside a tokio runtime.
    pub fn build(self) -> Result<Client, Error> {
        let invalid = |rule: String| Error::Invalid {
            what: "endpoints",
            rule,
        };
        if self.endpoints.is_empty() || self.endpoints.len() > ENDPOINTS_MAX {
            return Err(invalid(format!("from 1 to {ENDPOINTS_MAX}")));
        }
        for endpoint in &self.endpoints {
            let authority = endpoint
                .parse::<http::uri::Authority>()
                .ok()
                .filter(|address| address.port().is_some());
            if authority.is_none() || format!("http://{endpoint}").parse::<Uri>().is_err() {
                return Err(invalid(format!("{endpoint:?} is not HOST:PORT")));
            }
        }
        let mut label = self.label.unwrap_or_else(default_label);
        label.truncate(label.floor_char_boundary(LABEL_BYTES_MAX));
        Ok(Client::new(Options {
            endpoints: self.endpoints,
            tenant: self.tenant.unwrap_or_else(|| "default".to_owned()),
            namespace: self.namespace.unwrap_or_else(|| "default".to_owned()),
            timeout: self.timeout.unwrap_or(TIMEOUT_DEFAULT).max(TIMEOUT_MIN),
            label,
            request_mode: self.request_mode,
            wait_for_node: self.wait_for_node,
            only_given_endpoints: self.only_given_endpoints,
            runtime: self.runtime.unwrap_or_else(ClientRuntime::system),
        }))
    }

    /// Makes the client and connects to the first endpoint that can be reached.
    ///
    /// # Errors
    /// Those of [`build`](ClientBuilder::build), or none could be reached.
    ///
    /// # Panics
    /// If no runtime was chosen and it is called outside a tokio runtime.
    pub async fn connect(self) -> Result<Client, Error> {
        let client = self.build()?;
        client.hello().await?;
        Ok(client)
    }
}

/// Host, process id and program.
fn default_label() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = Some(host.trim())
        .filter(|host| !host.is_empty())
        .unwrap_or("unknown-host");
    let program = std::env::args_os().next().unwrap_or_default();
    let program = std::path::Path::new(&program)
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    format!("{host} {} {program}", std::process::id())
}
