//! The schema as it was released: every message, field, number and method.

use std::fmt::Write as _;

use prost::Message;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};
use tenure_api::v1::FILE_DESCRIPTOR_SET;

use crate::fixtures;

fn descriptors() -> FileDescriptorSet {
    FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("the committed descriptors")
}

#[test]
fn no_field_changes_its_number_its_type_or_its_name() {
    let mut schema = String::new();
    for file in descriptors().file {
        for message in &file.message_type {
            describe(&mut schema, file.package(), message);
        }
        for values in &file.enum_type {
            describe_enum(&mut schema, file.package(), values);
        }
        for service in &file.service {
            for method in &service.method {
                writeln!(
                    schema,
                    "rpc {}.{}/{} {}{} -> {}{}",
                    file.package(),
                    service.name(),
                    method.name(),
                    if method.client_streaming() { "stream " } else { "" },
                    method.input_type(),
                    if method.server_streaming() { "stream " } else { "" },
                    method.output_type()
                )
                .expect("writing to a string");
            }
        }
    }
    fixtures::assert_equal("schema.txt", &schema);
}

#[test]
fn numbers_of_fields_leave_no_gaps() {
    fn check(message: &DescriptorProto) {
        let mut numbers: Vec<i32> = message.field.iter().map(|field| field.number()).collect();
        numbers.sort_unstable();
        let expected: Vec<i32> = (1..).take(numbers.len()).collect();
        assert_eq!(numbers, expected, "{}", message.name());
        message.nested_type.iter().for_each(check);
    }
    for file in descriptors().file {
        file.message_type.iter().for_each(check);
    }
}

#[test]
fn every_unary_call_has_a_frame_for_its_request_and_its_answer() {
    let files = descriptors().file;
    let types_in = |frame: &str| -> Vec<String> {
        let message = files
            .iter()
            .flat_map(|file| &file.message_type)
            .find(|message| message.name() == frame);
        message
            .expect("a frame")
            .field
            .iter()
            .map(|field| field.type_name().to_owned())
            .collect()
    };
    let (requests, answers) = (types_in("ClientFrame"), types_in("ServerFrame"));
    for service in files
        .iter()
        .flat_map(|file| &file.service)
        .filter(|service| !["Mux", "Backups", "Membership"].contains(&service.name()))
    {
        for method in &service.method {
            assert!(
                requests.iter().any(|name| name == method.input_type()),
                "{}",
                method.input_type()
            );
            assert!(
                answers.iter().any(|name| name == method.output_type()),
                "{}",
                method.output_type()
            );
        }
    }
}

fn describe(schema: &mut String, parent: &str, message: &DescriptorProto) {
    let name = format!("{parent}.{}", message.name());
    writeln!(schema, "message {name}").expect("writing to a string");
    for field in &message.field {
        let kind = if field.type_name().is_empty() {
            format!("{:?}", field.r#type()).to_lowercase()
        } else {
            field.type_name().to_owned()
        };
        let place = if field.proto3_optional() {
            " optional".to_owned()
        } else if let Some(index) = field.oneof_index {
            format!(
                " of {}",
                message.oneof_decl[usize::try_from(index).expect("an index")].name()
            )
        } else if field.label() == prost_types::field_descriptor_proto::Label::Repeated {
            " repeated".to_owned()
        } else {
            String::new()
        };
        writeln!(schema, "  {} {} {kind}{place}", field.number(), field.name()).expect("writing to a string");
    }
    for nested in &message.nested_type {
        describe(schema, &name, nested);
    }
    for values in &message.enum_type {
        describe_enum(schema, &name, values);
    }
}

fn describe_enum(schema: &mut String, parent: &str, values: &EnumDescriptorProto) {
    writeln!(schema, "enum {parent}.{}", values.name()).expect("writing to a string");
    for value in &values.value {
        writeln!(schema, "  {} {}", value.number(), value.name()).expect("writing to a string");
    }
}
