//! Makes what is generated and committed: the Rust code and descriptors of `proto/tenure/v1`, the Rust code of
//! `proto/tenure/peer/v1`, which only nodes speak, and the reference of errors. With `--check` it changes nothing, names each file that differs, and exits with 1 if one does.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, process};

use tenure_api::ErrorCode;

/// The folder of `tenure.v1`, below the folder `proto`.
const PROTO_FOLDER: &str = "tenure/v1";
/// The folder of `tenure.peer.v1`.
const PEER_PROTO_FOLDER: &str = "tenure/peer/v1";

fn main() -> ExitCode {
    let check = match env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [option] if option == "--check" => true,
        _ => {
            eprintln!("usage: tenure-api-codegen [--check]");
            return ExitCode::from(2);
        }
    };
    match run(check) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tenure-api-codegen: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes or compares each file; the number of files that differ from what they should be.
fn run(check: bool) -> Result<usize, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let mut different = 0;
    for Generated { name, content } in generate(&root)? {
        let path = root.join(name);
        if fs::read(&path).is_ok_and(|committed| committed == content) {
            continue;
        }
        if check {
            eprintln!("{name} differs: run `cargo run -p tenure-api --features codegen --bin tenure-api-codegen`");
            different += 1;
        } else {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::write(&path, content)?;
            eprintln!("{name} written");
        }
    }
    Ok(different)
}

/// Every generated file.
fn generate(root: &Path) -> Result<Vec<Generated>, Box<dyn Error>> {
    let proto = root.join("proto");
    let mut compiler = protox::Compiler::new([&proto])?;
    compiler
        .include_imports(true)
        .include_source_info(true)
        .open_files(proto_files(&proto, PROTO_FOLDER)?)?;
    let descriptors = compiler.file_descriptor_set();
    // Reflection needs no comments.
    let encoded = compiler.include_source_info(false).encode_file_descriptor_set();

    let folder = ScratchFolder::new()?;
    tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".")
        // Secrets, and a nonce that finds one, are not for logs; their Debug is written by hand.
        .skip_debug([".tenure.v1.SessionRef", ".tenure.v1.OpenSessionRequest"])
        // Rare and large: boxed, an error stays small enough to be the error of a `Result` as it is.
        .boxed(".tenure.v1.WireError.leader")
        .boxed(".tenure.v1.WireError.detail.invalid")
        .boxed(".tenure.v1.WireError.detail.not_found")
        .boxed(".tenure.v1.WireError.detail.mismatch")
        // A message may claim very many operations in two bytes each: boxed, none takes room before it says something.
        .boxed(".tenure.v1.TxnOperation.kind.put")
        .boxed(".tenure.v1.TxnOperation.kind.delete")
        .boxed(".tenure.v1.TxnOperation.kind.add")
        .boxed(".tenure.v1.TxnOperation.kind.append")
        .boxed(".tenure.v1.TxnOperation.kind.get")
        .boxed(".tenure.v1.TxnGuard.kind.key")
        .boxed(".tenure.v1.TxnGuard.kind.counter")
        .boxed(".tenure.v1.TxnGuard.kind.stream_tail")
        .out_dir(&folder.path)
        .compile_fds(descriptors)?;
    let code = fs::read(folder.path.join("tenure.v1.rs"))?;

    Ok(vec![
        Generated {
            name: "crates/server/tenure-replica/src/generated/tenure.peer.v1.rs",
            content: peer_code(&proto, &folder.path)?,
        },
        Generated {
            name: "crates/tenure-api/src/generated/tenure.v1.rs",
            content: code,
        },
        Generated {
            name: "crates/tenure-api/src/generated/tenure.v1.bin",
            content: encoded,
        },
        Generated {
            name: "docs/reference/errors.md",
            content: errors_page().into_bytes(),
        },
    ])
}

/// The code of what nodes say to each other. It goes without descriptors: nobody else is to call it.
fn peer_code(proto: &Path, scratch: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut compiler = protox::Compiler::new([proto])?;
    compiler
        .include_source_info(true)
        .open_files(proto_files(proto, PEER_PROTO_FOLDER)?)?;
    tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".")
        .out_dir(scratch)
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(fs::read(scratch.join("tenure.peer.v1.rs"))?)
}

/// The files of a package by name, in an order that does not depend on the file system.
fn proto_files(proto: &Path, package: &str) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(proto.join(package))? {
        let name = PathBuf::from(entry?.file_name());
        if name.extension().is_some_and(|extension| extension == "proto") {
            files.push(Path::new(package).join(name));
        }
    }
    files.sort();
    Ok(files)
}

/// The reference of errors.
fn errors_page() -> String {
    let mut page = String::from(
        "# Errors\n\n\
         <!-- Generated by tenure-api-codegen from the table in the code; edits here are lost. -->\n\n\
         Every answer of Tenure is one of four. *Done* and *refused* are normal answers; a refusal is a verdict: nothing\n\
         changed, and the answer says what stood in the way. *Not applied* and *unknown* are errors: in the first case\n\
         the request was not applied and this attempt never will be, in the second it may or may not have been. Sending\n\
         a request again under the same request id is always safe: it returns the first answer if there was one.\n\n\
         The outcome of a call is the worst over its attempts: after one attempt that ended in unknown, a later\n\
         *not applied* says nothing of the earlier one. Only the result itself and `session_expired` settle it.\n\n\
         | code | outcome | gRPC | HTTP | exit | try again | carries | what to do |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for code in ErrorCode::ALL {
        writeln!(
            page,
            "| `{code}` | {} | `{}` | {} | {} | {} | {} | {} |",
            code.outcome().name().replace('_', " "),
            grpc_name(code.grpc()),
            code.http(),
            code.exit(),
            if code.retryable() { "yes" } else { "no" },
            code.carries(),
            code.advice(),
        )
        .expect("writing to a string cannot fail");
    }
    page.push_str(
        "\n*Try again*: the same request may get another answer a moment later or from another node, with nothing changed\n\
         by the caller. Where the outcome is unknown, only a request with an id may be sent again; without one, look at\n\
         the data first.\n\n\
         *Exit* is the exit status of the `tenure` command: 1 any other failure, 2 usage or settings, 3 no node could\n\
         serve it in time and nothing was applied, 4 refused, 5 does not exist, 6 outcome unknown.\n",
    );
    page
}

/// The name of a gRPC status as its specification spells it.
fn grpc_name(code: tonic::Code) -> &'static str {
    match code {
        tonic::Code::Ok => "OK",
        tonic::Code::Cancelled => "CANCELLED",
        tonic::Code::Unknown => "UNKNOWN",
        tonic::Code::InvalidArgument => "INVALID_ARGUMENT",
        tonic::Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        tonic::Code::NotFound => "NOT_FOUND",
        tonic::Code::AlreadyExists => "ALREADY_EXISTS",
        tonic::Code::PermissionDenied => "PERMISSION_DENIED",
        tonic::Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        tonic::Code::FailedPrecondition => "FAILED_PRECONDITION",
        tonic::Code::Aborted => "ABORTED",
        tonic::Code::OutOfRange => "OUT_OF_RANGE",
        tonic::Code::Unimplemented => "UNIMPLEMENTED",
        tonic::Code::Internal => "INTERNAL",
        tonic::Code::Unavailable => "UNAVAILABLE",
        tonic::Code::DataLoss => "DATA_LOSS",
        tonic::Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// One generated file.
struct Generated {
    /// Its name below the root.
    name: &'static str,
    /// What it should hold.
    content: Vec<u8>,
}

/// A folder of this process that is removed at the end; the generator writes to folders only.
struct ScratchFolder {
    path: PathBuf,
}

impl ScratchFolder {
    fn new() -> Result<ScratchFolder, Box<dyn Error>> {
        let path = env::temp_dir().join(format!("tenure-api-codegen-{}", process::id()));
        fs::create_dir_all(&path)?;
        Ok(ScratchFolder { path })
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // What is left behind is a few files in the system's own scratch folder.
        let _ = fs::remove_dir_all(&self.path);
    }
}
