//! Content to store, as pieces of a fixed size and counted against a limit; and files as streams.
//!
//! At most one piece, and one chunk of the stream, is held in memory.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read},
    path::Path as FilePath,
};

use bytes::{Bytes, BytesMut};
use futures::{
    StreamExt,
    stream::{self, BoxStream},
};

use crate::store::{BlobError, StoreError};

/// Number of bytes read from a file at a time.
const READ_BYTES: usize = 256 * 1024;

/// Content to store.
pub(super) struct Body<'a> {
    stream: BoxStream<'a, io::Result<Bytes>>,
    limit_bytes: u64,
    size: u64,
    buffered: VecDeque<Bytes>,
    buffered_bytes: usize,
    is_finished: bool,
}

/// A part of a body.
pub(super) struct Piece {
    /// The bytes, in order. Their total is the requested size; less only in the last piece.
    pub(super) bytes: Vec<Bytes>,
    /// Whether this is the last piece.
    pub(super) is_last: bool,
}

impl<'a> Body<'a> {
    /// Creates a body from a stream that may have at most `limit_bytes`.
    pub(super) fn new(stream: BoxStream<'a, io::Result<Bytes>>, limit_bytes: u64) -> Self {
        Self {
            stream,
            limit_bytes,
            size: 0,
            buffered: VecDeque::new(),
            buffered_bytes: 0,
            is_finished: false,
        }
    }

    /// Creates a body from bytes in memory.
    pub(super) fn from_bytes(bytes: Bytes) -> Self {
        Self::new(stream::once(async { Ok(bytes) }).boxed(), u64::MAX)
    }

    /// Returns the number of bytes received so far.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Waits for the next `want_bytes` bytes. A body without bytes has one empty last piece.
    pub(super) async fn next_piece(&mut self, want_bytes: usize) -> Result<Piece, BlobError> {
        // One more byte than requested shows that the piece is not the last one.
        while !self.is_finished && self.buffered_bytes <= want_bytes {
            match self.stream.next().await {
                None => self.is_finished = true,
                Some(Err(error)) => return Err(BlobError::SourceUnreadable(error.to_string())),
                Some(Ok(bytes)) => self.buffer(bytes)?,
            }
        }
        let mut piece = Vec::new();
        let mut missing = want_bytes.min(self.buffered_bytes);
        self.buffered_bytes -= missing;
        while missing > 0
            && let Some(mut bytes) = self.buffered.pop_front()
        {
            if bytes.len() > missing {
                self.buffered.push_front(bytes.split_off(missing));
            }
            missing -= bytes.len();
            piece.push(bytes);
        }
        Ok(Piece {
            bytes: piece,
            is_last: self.is_finished && self.buffered_bytes == 0,
        })
    }

    fn buffer(&mut self, bytes: Bytes) -> Result<(), BlobError> {
        self.size = self
            .size
            .saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        if self.size > self.limit_bytes {
            return Err(BlobError::TooLarge {
                limit_bytes: self.limit_bytes,
            });
        }
        if !bytes.is_empty() {
            self.buffered_bytes += bytes.len();
            self.buffered.push_back(bytes);
        }
        Ok(())
    }
}

/// Runs blocking work on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(BlobError::Io(error.to_string()).into()),
    }
}

/// Opens a source file, unless it is larger than `limit_bytes`.
///
/// Accepts regular files only, because reading a pipe could block forever.
pub(super) async fn open_source(path: &FilePath, limit_bytes: u64) -> Result<File, StoreError> {
    let path = path.to_owned();
    blocking(move || {
        let failed =
            |error: io::Error| BlobError::SourceUnreadable(format!("{}: {error}", path.display()));
        if !std::fs::metadata(&path).map_err(failed)?.is_file() {
            return Err(BlobError::SourceUnreadable(format!(
                "{} is not a regular file",
                path.display()
            ))
            .into());
        }
        let file = File::open(&path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() > limit_bytes {
            return Err(BlobError::TooLarge { limit_bytes }.into());
        }
        Ok(file)
    })
    .await
}

/// Streams the bytes of a file from its current position to its end.
pub(super) fn stream_file(file: File) -> BoxStream<'static, io::Result<Bytes>> {
    let read = |file: File| async move {
        let read = tokio::task::spawn_blocking(move || {
            let mut buffer = BytesMut::zeroed(READ_BYTES);
            let mut filled = 0;
            while filled < buffer.len() {
                match (&file).read(&mut buffer[filled..]) {
                    Ok(0) => break,
                    Ok(count) => filled += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            buffer.truncate(filled);
            Ok((filled > 0).then(|| (buffer.freeze(), file)))
        });
        read.await.map_err(io::Error::other)?
    };
    stream::try_unfold(file, read).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(pieces: &[&'static str], limit_bytes: u64) -> Body<'static> {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|text| Ok(Bytes::from_static(text.as_bytes())))
            .collect();
        Body::new(stream::iter(pieces).boxed(), limit_bytes)
    }

    async fn all(mut body: Body<'_>, want_bytes: usize) -> Result<Vec<String>, BlobError> {
        let mut found = Vec::new();
        loop {
            let piece = body.next_piece(want_bytes).await?;
            found.push(String::from_utf8(piece.bytes.concat()).unwrap());
            if piece.is_last {
                return Ok(found);
            }
        }
    }

    #[tokio::test]
    async fn body_is_rechunked_into_equal_parts() {
        for (given, want) in [
            (&[][..], &[""][..]),
            (&["", ""], &[""]),
            (&["ab"], &["ab"]),
            (&["abc"], &["abc"]),
            (&["abc", ""], &["abc"]),
            (&["abcd"], &["abc", "d"]),
            (&["a", "bcdefgh"], &["abc", "def", "gh"]),
            (&["abcdef", "", "g"], &["abc", "def", "g"]),
        ] {
            assert_eq!(all(body(given, 100), 3).await.unwrap(), want, "{given:?}");
        }
    }

    #[tokio::test]
    async fn body_larger_than_limit_is_rejected() {
        for (limit_bytes, want) in [
            (4, Ok(vec!["abc".to_owned(), "d".into()])),
            (3, Err(BlobError::TooLarge { limit_bytes: 3 })),
        ] {
            assert_eq!(all(body(&["ab", "cd"], limit_bytes), 3).await, want);
        }
    }
}
