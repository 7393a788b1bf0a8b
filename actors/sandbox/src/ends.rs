//! The first and the last part of a stream, however long it is.

/// Keeps the beginning and the end of what is pushed, in memory that does not grow with it.
#[derive(Debug, Clone)]
pub struct Ends {
    head: Vec<u8>,
    head_bytes: usize,
    /// A ring once it is full; `next` is then where its oldest byte is.
    tail: Vec<u8>,
    tail_bytes: usize,
    next: usize,
    total: u64,
}

impl Ends {
    /// Makes one that keeps the first `head_bytes` and, of what comes after them, the last `tail_bytes`.
    pub fn new(head_bytes: usize, tail_bytes: usize) -> Self {
        Self { head: Vec::new(), head_bytes, tail: Vec::new(), tail_bytes, next: 0, total: 0 }
    }

    /// Takes the next part of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_bytes - self.head.len()));
        self.head.extend_from_slice(first);
        // What the ring would lose again at once need not go in.
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

    /// Returns how many bytes there were in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Returns how many bytes were left out between the two parts.
    pub fn left_out(&self) -> u64 {
        self.total - (self.head.len() + self.tail.len()) as u64
    }

    /// Returns the beginning.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Returns the end; it follows the beginning where nothing was left out.
    pub fn tail(&self) -> Vec<u8> {
        [&self.tail[self.next..], &self.tail[..self.next]].concat()
    }
}
