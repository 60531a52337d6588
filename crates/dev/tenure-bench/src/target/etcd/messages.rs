//! The parts of etcd's public messages that the measurement sends and reads. Names are ours, numbers are etcd's.

use prost::Message;

/// What of a key is compared: the revision of its creation, 0 if there is no key.
const CREATED: i32 = 1;

/// Compares, then does one thing or nothing.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<Operation>,
}

impl TxnRequest {
    /// Puts a key under a lease if it was created at this revision.
    pub(super) fn put_if_created(key: &str, created: i64, value: &str, lease: i64) -> TxnRequest {
        let put = Put {
            key: key.into(),
            value: value.into(),
            lease,
        };
        TxnRequest::if_created(key, created, Some(put), None)
    }

    /// Deletes a key if it was created at this revision.
    pub(super) fn delete_if_created(key: &str, created: i64) -> TxnRequest {
        TxnRequest::if_created(key, created, None, Some(Delete { key: key.into() }))
    }

    fn if_created(key: &str, created: i64, put: Option<Put>, delete: Option<Delete>) -> TxnRequest {
        let compare = Compare {
            result: 0,
            target: CREATED,
            key: key.into(),
            created: Some(created),
        };
        TxnRequest {
            compare: vec![compare],
            success: vec![Operation { put, delete }],
        }
    }
}

/// A condition.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    /// 0: equal.
    #[prost(int32, tag = "1")]
    pub(super) result: i32,
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(int64, optional, tag = "5")]
    pub(super) created: Option<i64>,
}

/// One of them.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Operation {
    #[prost(message, optional, tag = "2")]
    pub(super) put: Option<Put>,
    #[prost(message, optional, tag = "3")]
    pub(super) delete: Option<Delete>,
}

/// A write.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

/// A deletion of one key.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
}

/// What became of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnAnswer {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
}

/// What stands in each answer.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

/// Asks for a lease; id 0 lets etcd choose.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseRequest {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
}

/// A lease.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGranted {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_encoded_as_etcd_reads_it() {
        let bytes = TxnRequest::put_if_created("k", 0, "v", 5).encode_to_vec();
        // compare { target: CREATE, key: "k", create_revision: 0 }, the revision spelled out although it is zero.
        let mut expected = vec![0x0a, 7, 0x10, 1, 0x1a, 1, b'k', 0x28, 0];
        // success { request_put { key: "k", value: "v", lease: 5 } }
        expected.extend([0x12, 10, 0x12, 8, 0x0a, 1, b'k', 0x12, 1, b'v', 0x18, 5]);
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_release_names_the_creation_and_one_key() {
        let bytes = TxnRequest::delete_if_created("k", 9).encode_to_vec();
        let expected = [
            0x0a, 7, 0x10, 1, 0x1a, 1, b'k', 0x28, 9, 0x12, 5, 0x1a, 3, 0x0a, 1, b'k',
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn an_answer_is_read_though_it_says_more() {
        // header { cluster_id: 1, revision: 7 }, succeeded, and a response that is not looked at.
        let bytes = [0x0a, 4, 0x08, 1, 0x18, 7, 0x10, 1, 0x1a, 2, 0x12, 0];
        let answer = TxnAnswer::decode(&bytes[..]).unwrap();
        assert_eq!((answer.header.unwrap().revision, answer.succeeded), (7, true));
    }
}
