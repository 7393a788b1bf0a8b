//! The first and last bytes of a stream of any length.

/// Keeps the beginning and the end of a stream, in a bounded amount of memory.
#[derive(Debug, Clone)]
pub struct HeadTailBuffer {
    head: Vec<u8>,
    head_bytes: usize,
    /// Ring buffer once it is full; `next` is then the position of its oldest byte.
    tail: Vec<u8>,
    tail_bytes: usize,
    next: usize,
    total: u64,
}

impl HeadTailBuffer {
    /// Creates a buffer that keeps the first `head_bytes` bytes and, of the following bytes, the
    /// last `tail_bytes`.
    pub fn new(head_bytes: usize, tail_bytes: usize) -> Self {
        Self {
            head: Vec::new(),
            head_bytes,
            tail: Vec::new(),
            tail_bytes,
            next: 0,
            total: 0,
        }
    }

    /// Appends the next part of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_bytes - self.head.len()));
        self.head.extend_from_slice(first);
        // Bytes that the ring would drop again immediately are skipped.
        let mut rest = &rest[rest.len().saturating_sub(self.tail_bytes)..];
        let grows = rest.len().min(self.tail_bytes - self.tail.len());
        self.tail.extend_from_slice(&rest[..grows]);
        rest = &rest[grows..];
        while !rest.is_empty() {
            let run = rest.len().min(self.tail_bytes - self.next);
            self.tail[self.next..self.next + run].copy_from_slice(&rest[..run]);
            self.next = (self.next + run) % self.tail_bytes;
            rest = &rest[run..];
        }
    }

    /// Returns the total number of bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns the number of bytes that were dropped between the two parts.
    pub fn dropped_bytes(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// Returns the beginning.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns the end. It directly follows the beginning if nothing was dropped.
    pub fn tail(&self) -> Vec<u8> {
        [&self.tail[self.next..], &self.tail[..self.next]].concat()
    }
}
