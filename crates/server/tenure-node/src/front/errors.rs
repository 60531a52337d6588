//! Errors that the gRPC library answers before our handler sees a request, with a name of ours.

use axum::body::Body;
use http::Response;
use tenure_api::details::ERROR_TRAILER;
use tenure_api::limits::MESSAGE_BYTES_MAX;
use tenure_api::v1::WireError;
use tonic::{Code, Status};

/// The same answer, except that a message that could not be taken in is answered `limit` or `invalid`. The library says
/// both before the handler runs, so nothing was done.
pub(super) fn named(response: Response<Body>) -> Response<Body> {
    let headers = response.headers();
    let Some(code) = headers.get(Status::GRPC_STATUS) else {
        return response;
    };
    if headers.contains_key(ERROR_TRAILER) {
        return response;
    }
    let error = match Code::from_bytes(code.as_bytes()) {
        Code::OutOfRange => WireError::limit("message bytes", MESSAGE_BYTES_MAX as u64),
        Code::Internal => WireError::invalid("message", "a message of this method"),
        _ => return response,
    };
    Status::from(error).into_http()
}
