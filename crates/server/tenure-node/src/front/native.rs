//! Our own protocol over gRPC: unary calls, and one multiplexed stream over the same handler.

use tenure_api::limits::MESSAGE_BYTES_MAX;
use tenure_api::v1;
use tonic::service::Routes;

use crate::service::Service;

mod backup;
mod catalog;
mod cluster;
mod decode;
mod encode;
mod error;
mod handler;
mod keys;
mod membership;
mod mux;
mod outbox;
mod sessions;
mod streams;
mod subscription;
mod txn;
mod unary;
mod watch;

/// All gRPC services of a node, health, reflection and that for other nodes among them.
pub(crate) fn routes(service: &Service) -> Routes {
    let (health, health_service) = tonic_health::server::health_reporter();
    let watched = service.clone();
    service.runtime().tasks.spawn(
        "health",
        Box::pin(async move {
            watched.stopping().await;
            for name in [
                "",
                "tenure.v1.Keys",
                "tenure.v1.Sessions",
                "tenure.v1.Catalog",
                "tenure.v1.Streams",
                "tenure.v1.Transactions",
                "tenure.v1.Cluster",
                "tenure.v1.Backups",
                "tenure.v1.Membership",
                "tenure.v1.Mux",
            ] {
                health
                    .set_service_status(name, tonic_health::ServingStatus::NotServing)
                    .await;
            }
        }),
    );
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .expect("the descriptors were made together with the code");
    let doors = unary::Doors::new(service.clone());
    Routes::new(health_service)
        .add_service(service.identity().peers.service())
        .add_service(reflection)
        .add_service(v1::keys_server::KeysServer::new(doors.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(
            v1::sessions_server::SessionsServer::new(doors.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
        .add_service(v1::catalog_server::CatalogServer::new(doors.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(v1::streams_server::StreamsServer::new(doors.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(
            v1::transactions_server::TransactionsServer::new(doors.clone())
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
        .add_service(
            v1::backups_server::BackupsServer::new(backup::Backups::new(service.clone()))
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
        .add_service(
            v1::membership_server::MembershipServer::new(membership::Members::new(service.clone()))
                .max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
        .add_service(v1::cluster_server::ClusterServer::new(doors).max_decoding_message_size(MESSAGE_BYTES_MAX))
        .add_service(
            v1::mux_server::MuxServer::new(mux::Mux::new(service.clone())).max_decoding_message_size(MESSAGE_BYTES_MAX),
        )
}
