//! Bytes in JSON: `NAME` as text where they are UTF-8, else `NAME_base64`.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::base64;

/// Bytes under a name, to be flattened into an object.
#[derive(Clone, Debug)]
pub(crate) struct Blob<T> {
    /// The name if they are UTF-8.
    pub(crate) name: &'static str,
    /// The bytes.
    pub(crate) bytes: T,
}

impl<T: AsRef<[u8]>> Blob<T> {
    /// The bytes of a key.
    pub(crate) fn key(bytes: T) -> Blob<T> {
        Blob { name: "key", bytes }
    }

    /// The bytes of a value.
    pub(crate) fn value(bytes: T) -> Blob<T> {
        Blob { name: "value", bytes }
    }
}

impl<T: AsRef<[u8]>> Serialize for Blob<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(1))?;
        match std::str::from_utf8(self.bytes.as_ref()) {
            Ok(text) => map.serialize_entry(self.name, text)?,
            Err(_) => {
                let name = format!("{}_base64", self.name);
                map.serialize_entry(&name, &base64::encode(self.bytes.as_ref()))?;
            }
        }
        map.end()
    }
}

/// Bytes that may be missing: then nothing stands in the object.
#[derive(Clone, Debug)]
pub(crate) struct MaybeBlob<T>(pub(crate) Option<Blob<T>>);

impl<T: AsRef<[u8]>> Serialize for MaybeBlob<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(blob) => blob.serialize(serializer),
            None => serializer.serialize_map(Some(0))?.end(),
        }
    }
}
