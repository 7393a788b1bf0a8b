//! Tests with an S3-compatible server that they start: the contract, and that no upload stays open.
//!
//! The server is `moto_server`, or the command in `SOONG_TEST_S3_SERVER`, which must bind a free
//! port and print it as `127.0.0.1:PORT`. If there is no server, the tests print that they were
//! skipped. If the variable names a server that does not start, they fail.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
};

use futures::{channel::oneshot, future};

use super::*;

const BUCKET: &str = "soong-test";

/// A server process; killed when dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start() -> Option<Self> {
        let given = env::var("SOONG_TEST_S3_SERVER").ok();
        let command = given
            .clone()
            .unwrap_or_else(|| "moto_server -H 127.0.0.1 -p 0".into());
        let mut words = command.split_whitespace();
        let started = Command::new(words.next().unwrap())
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut process = match started {
            Ok(process) => process,
            Err(error) if given.is_none() => {
                println!("skipped: no server that speaks like S3 was found ({command}: {error})");
                return None;
            }
            Err(error) => panic!("{command}: {error}"),
        };
        let (found, address) = mpsc::channel();
        let outputs: [Box<dyn Read + Send>; 2] = [
            Box::new(process.stdout.take().unwrap()),
            Box::new(process.stderr.take().unwrap()),
        ];
        for output in outputs {
            let found = found.clone();
            // Reads until the end, because a server blocks if its output is not read.
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if let Some(address) = address_in(&line) {
                        let _ = found.send(address);
                    }
                }
            });
        }
        drop(found);
        let mut server = Self {
            process,
            address: String::new(),
        };
        server.address = match address.recv() {
            Ok(address) => address,
            // For example if the name on the path is not a working program.
            Err(_) if given.is_none() => {
                println!("skipped: {command} ended without saying where it listens");
                return None;
            }
            Err(_) => panic!("{command}: ended without saying where it listens"),
        };
        let answer = server.request("PUT", &format!("/{BUCKET}"));
        assert!(
            answer.starts_with("HTTP/1.1 200"),
            "the bucket could not be made: {answer}"
        );
        Some(server)
    }

    fn request(&self, method: &str, target: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        // Not signed, but these servers read the name of the service from it.
        let credential = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: {credential}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn open(&self, prefix: &str) -> BlobStore {
        let environment = |name: &str| match name {
            "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("test".to_owned()),
            "AWS_REGION" => Some("us-east-1".to_owned()),
            "AWS_ENDPOINT_URL" => Some(format!("http://{}", self.address)),
            _ => None,
        };
        let location = BlobLocation::parse(&format!("s3://{BUCKET}/{prefix}")).unwrap();
        BlobStore::open(FilePath::new("nowhere"), &location, &environment).unwrap()
    }

    /// Returns the number of uploads that are neither completed nor aborted.
    fn open_uploads(&self) -> usize {
        let answer = self.request("GET", &format!("/{BUCKET}?uploads"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer.matches("<UploadId>").count()
    }

    /// Returns the names of all objects.
    fn objects(&self) -> Vec<String> {
        let answer = self.request("GET", &format!("/{BUCKET}?list-type=2"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
            .split("<Key>")
            .skip(1)
            .map(|rest| rest.split('<').next().unwrap().to_owned())
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn address_in(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("127.0.0.1:")?;
    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
    port.parse::<u16>()
        .ok()
        .filter(|port| *port > 0)
        .map(|port| format!("127.0.0.1:{port}"))
}

#[tokio::test]
async fn s3_store_satisfies_the_contract() {
    let Some(server) = Server::start() else {
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let number = std::cell::Cell::new(0);
    contract::check(scratch.path(), || {
        number.set(number.get() + 1);
        // The first store has no prefix.
        server.open(&if number.get() == 1 {
            String::new()
        } else {
            format!("team/{}", number.get())
        })
    })
    .await;
    assert_eq!(server.open_uploads(), 0);
    let notes: Vec<_> = server
        .objects()
        .into_iter()
        .filter(|name| name.contains('#'))
        .collect();
    assert!(notes.is_empty(), "{notes:?}");
}

#[tokio::test]
async fn object_is_stored_at_its_path() {
    let Some(server) = Server::start() else {
        return;
    };
    let blobs = server.open("team");
    blobs
        .put(&path("a", 1), Bytes::from_static(b"x"))
        .await
        .unwrap();
    assert_eq!(server.objects(), [format!("team/{}", path("a", 1))]);
    assert_eq!(blobs.local_path(&path("a", 1)), None);
    assert_eq!(format!("{blobs:?}"), format!("Blobs(s3://{BUCKET}/team)"));
}

#[tokio::test]
async fn deletion_aborts_upload_interrupted_by_crash() {
    let Some(server) = Server::start() else {
        return;
    };
    let path = path("a", 1);
    for is_crash in [true, false] {
        let blobs = server.open("team");
        let (reached, is_reached) = oneshot::channel();
        let stalled = stream::once(async move {
            let _ = reached.send(());
            future::pending().await
        });
        let given =
            stream::iter([Ok(Bytes::from(vec![7; 3 * objects::PART_BYTES]))]).chain(stalled);
        let write = blobs.put_stream(&path, u64::MAX, given.boxed());
        let mut write = Box::pin(write);
        future::select(&mut write, is_reached).await;
        assert_eq!(
            (server.open_uploads(), server.objects().len()),
            (1, 1),
            "{:?}",
            server.objects()
        );
        if is_crash {
            // The first process cannot clean up; another one opens the same bucket.
            std::mem::forget(write);
            let later = server.open("team");
            later.delete(&path).await.unwrap();
            later.put(&path, Bytes::from_static(b"next")).await.unwrap();
            later.delete(&path).await.unwrap();
        } else {
            drop(write);
            blobs.delete(&path).await.unwrap();
        }
        assert_eq!(
            (server.open_uploads(), server.objects().len()),
            (0, 0),
            "{is_crash}: {:?}",
            server.objects()
        );
    }
}

/// A file of 100 MB is uploaded and read in parts, and never held in memory as a whole.
#[tokio::test]
async fn large_object_is_uploaded_in_parts() {
    const CHUNKS: usize = 100;
    let Some(server) = Server::start() else {
        return;
    };
    let blobs = server.open("team");
    let chunk = |number: usize| Bytes::from(vec![number as u8; 1024 * 1024]);
    let body = stream::iter((0..CHUNKS).map(move |number| Ok(chunk(number))));
    let size = blobs
        .put_stream(&path("a", 1), u64::MAX, body.boxed())
        .await
        .unwrap();
    assert_eq!(
        (size, server.open_uploads()),
        (CHUNKS as u64 * 1024 * 1024, 0)
    );
    let (length, mut stream) = blobs.get_stream(&path("a", 1)).await.unwrap().unwrap();
    assert_eq!(length, size);
    let mut read = 0;
    while let Some(part) = stream.next().await {
        let part = part.unwrap();
        let expected = |at: usize| (at / (1024 * 1024)) as u8;
        assert!(
            part.first() == Some(&expected(read))
                && part.last() == Some(&expected(read + part.len() - 1))
        );
        read += part.len();
    }
    assert_eq!(read as u64, size);
}

#[tokio::test]
async fn check_writes_reads_and_deletes() {
    let Some(server) = Server::start() else {
        return;
    };
    server.open("team").check().await.unwrap();
    assert_eq!(server.objects(), [""; 0]);
    // A server that is down is reported after the retries; the clock runs ahead while nothing else
    // happens.
    let blobs = server.open("team");
    drop(server);
    tokio::time::pause();
    let error = blobs.check().await.unwrap_err();
    assert!(
        matches!(error, StoreError::Blob(BlobError::Io(_))),
        "{error}"
    );
}

#[tokio::test]
async fn missing_bucket_is_a_typed_error() {
    let Some(server) = Server::start() else {
        return;
    };
    let environment = |name: &str| match name {
        "AWS_ENDPOINT_URL_S3" => Some(format!("http://{}", server.address)),
        "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" => Some("a-secret".to_owned()),
        _ => None,
    };
    let location = BlobLocation::parse("s3://there-is-none").unwrap();
    let blobs = BlobStore::open(FilePath::new("nowhere"), &location, &environment).unwrap();
    for size in [3, 2 * objects::PART_BYTES] {
        let error = blobs
            .put(&path("a", 1), Bytes::from(vec![7; size]))
            .await
            .unwrap_err();
        assert!(
            matches!(&error, StoreError::Blob(BlobError::Io(text)) if !text.contains("a-secret")),
            "{error}"
        );
    }
}
