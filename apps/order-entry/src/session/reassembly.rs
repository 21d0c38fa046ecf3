//! Frames out of a stream: TCP delivers bytes in pieces that do not respect the frames' ends.

/// Cuts a stream into frames. A frame that lies whole in the received bytes is returned in place; a
/// frame in pieces is put together in a buffer that is allocated at the start.
#[derive(Debug)]
pub struct Reassembly {
    buffer: Box<[u8]>,
    len: usize,
    /// The buffer's frame was handed out: the next call begins another.
    is_done: bool,
}

impl Reassembly {
    /// Room for frames of up to `frame_len_max` bytes.
    pub fn new(frame_len_max: usize) -> Self {
        Self { buffer: vec![0; frame_len_max].into_boxed_slice(), len: 0, is_done: false }
    }

    /// Bytes of the largest frame.
    pub fn frame_len_max(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes of an incomplete frame that are kept.
    pub fn pending(&self) -> usize {
        if self.is_done { 0 } else { self.len }
    }

    /// Forgets an incomplete frame, for the next connection.
    pub fn clear(&mut self) {
        self.len = 0;
        self.is_done = false;
    }

    /// Takes one frame from the front of `input`, or all of `input` where it ends before the frame
    /// does. Copies only frames in pieces.
    ///
    /// `frame_len` reads the length of a whole frame, at least 1, from its first bytes: `None`
    /// where these are too few.
    ///
    /// # Errors
    ///
    /// That of `frame_len`, or that of `too_long`, which is given the length of a frame that is
    /// longer than the buffer.
    #[inline]
    pub fn next<'s, 'i: 's, E>(
        &'s mut self,
        input: &mut &'i [u8],
        frame_len: impl Fn(&[u8]) -> Result<Option<usize>, E>,
        too_long: impl Fn(usize) -> E,
    ) -> Result<Option<&'s [u8]>, E> {
        if self.is_done {
            self.clear();
        }
        if self.len == 0 {
            match frame_len(input)? {
                Some(len) if len > self.buffer.len() => return Err(too_long(len)),
                Some(len) if len <= input.len() => {
                    let (frame, rest) = input.split_at(len);
                    *input = rest;
                    return Ok(Some(frame));
                }
                _ => {}
            }
        }
        self.collect(input, frame_len, too_long)
    }

    /// Adds to the frame in pieces. Until its length is known one byte a round is taken, of which
    /// headers have few; then all that belongs to it at once.
    fn collect<'s, E>(
        &'s mut self,
        input: &mut &[u8],
        frame_len: impl Fn(&[u8]) -> Result<Option<usize>, E>,
        too_long: impl Fn(usize) -> E,
    ) -> Result<Option<&'s [u8]>, E> {
        loop {
            let known = frame_len(&self.buffer[..self.len])?;
            let wanted = match known {
                Some(len) if len > self.buffer.len() => return Err(too_long(len)),
                Some(len) if len <= self.len => {
                    self.is_done = true;
                    return Ok(Some(&self.buffer[..len]));
                }
                Some(len) => len - self.len,
                // A header that does not fit is a frame that does not fit.
                None if self.len == self.buffer.len() => return Err(too_long(self.len + 1)),
                None => 1,
            };
            if input.is_empty() {
                return Ok(None);
            }
            let (front, rest) = input.split_at(wanted.min(input.len()));
            self.buffer[self.len..self.len + front.len()].copy_from_slice(front);
            self.len += front.len();
            *input = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame is a length byte and so many bytes.
    fn frame_len(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
        match bytes.first() {
            Some(0xff) => Err("bad"),
            first => Ok(first.map(|&len| 1 + usize::from(len))),
        }
    }

    fn frames(reassembly: &mut Reassembly, mut input: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
        let mut frames = Vec::new();
        while let Some(frame) = reassembly.next(&mut input, frame_len, |_| "too long")? {
            frames.push(frame.to_vec());
        }
        assert!(input.is_empty());
        Ok(frames)
    }

    #[test]
    fn frames_are_the_same_however_the_stream_is_cut() {
        let stream = b"\x03abc\x00\x01d\x05efghi";
        let whole = frames(&mut Reassembly::new(8), stream).unwrap();
        assert_eq!(whole, [&b"\x03abc"[..], b"\x00", b"\x01d", b"\x05efghi"]);
        for cut in 0..=stream.len() {
            let mut reassembly = Reassembly::new(8);
            let mut cuts = frames(&mut reassembly, &stream[..cut]).unwrap();
            cuts.extend(frames(&mut reassembly, &stream[cut..]).unwrap());
            assert_eq!(cuts, whole, "cut at {cut}");
        }
    }

    #[test]
    fn frame_longer_than_the_buffer_is_an_error_before_its_bytes_are_kept() {
        let mut reassembly = Reassembly::new(4);
        assert_eq!(frames(&mut reassembly, b"\x04"), Err("too long"));
        assert_eq!(reassembly.pending(), 0);
    }

    #[test]
    fn error_of_the_header_is_passed_on() {
        assert_eq!(frames(&mut Reassembly::new(4), b"\x00\xff"), Err("bad"));
    }
}
