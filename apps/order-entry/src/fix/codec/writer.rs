//! Writes a message field by field: for session messages, resends, and whatever has no template.

use core::fmt::{self, Write};

use super::{Decimal, SOH, checksum};

/// Bytes that are left free in front for `8=` and `9=`, whose length is known last.
const HEAD_ROOM: usize = 32;

/// The message does not fit the bytes that the writer was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unwritten;

impl fmt::Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the message does not fit its buffer")
    }
}

impl core::error::Error for Unwritten {}

/// Writes one message into `out`. Where the room ends, the rest is left out, and
/// [`Writer::finish`] says so.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
    full: bool,
}

impl<'a> Writer<'a> {
    /// A writer without a field.
    pub const fn new(out: &'a mut [u8]) -> Self {
        Self { out, at: HEAD_ROOM, full: false }
    }

    /// Adds a field. The first is MsgType (35). A value that is not data holds no SOH: bytes of
    /// that value are left out, because they would begin a field of the sender's choice.
    pub fn field(&mut self, tag: u32, value: &[u8]) -> &mut Self {
        self.tag(tag);
        for part in value.split(|byte| *byte == SOH) {
            self.put(part);
        }
        self.put(&[SOH]);
        self
    }

    /// Adds a length field and its data field, whose value may hold any byte.
    pub fn data(&mut self, length_tag: u32, data_tag: u32, value: &[u8]) -> &mut Self {
        self.number(length_tag, value.len() as u64).raw(data_tag, value)
    }

    /// Adds a field with a number.
    pub fn number(&mut self, tag: u32, value: u64) -> &mut Self {
        self.display(tag, value)
    }

    /// Adds a field with a price or quantity.
    pub fn decimal(&mut self, tag: u32, value: Decimal) -> &mut Self {
        self.display(tag, value)
    }

    /// Adds a field with the text of a value of ours; the text holds no SOH.
    pub fn display(&mut self, tag: u32, value: impl fmt::Display) -> &mut Self {
        self.tag(tag);
        // The writer never fails: it notes that it is full.
        let _ = write!(Text(self), "{value}");
        self.put(&[SOH]);
        self
    }

    /// Adds a field as it was received: its value may be data.
    pub(crate) fn raw(&mut self, tag: u32, value: &[u8]) -> &mut Self {
        self.tag(tag);
        self.put(value);
        self.put(&[SOH]);
        self
    }

    /// Adds BeginString, BodyLength and CheckSum, and returns the message.
    pub fn finish(&mut self, begin_string: &[u8]) -> Result<&[u8], Unwritten> {
        let (start, end) = self.finish_at(begin_string)?;
        Ok(&self.out[start..end])
    }

    /// The same; returns where in the writer's bytes the message is.
    pub(crate) fn finish_at(&mut self, begin_string: &[u8]) -> Result<(usize, usize), Unwritten> {
        let mut head = [0; HEAD_ROOM];
        let mut room = &mut head[..];
        let body_len = self.at - HEAD_ROOM;
        let put = |room: &mut &mut [u8], bytes: &[u8]| std::io::Write::write_all(room, bytes);
        put(&mut room, b"8=").map_err(|_| Unwritten)?;
        put(&mut room, begin_string).map_err(|_| Unwritten)?;
        std::io::Write::write_fmt(&mut room, format_args!("\x019={body_len}\x01")).map_err(|_| Unwritten)?;
        let head_len = HEAD_ROOM - room.len();
        let start = HEAD_ROOM - head_len;
        self.out.get_mut(start..HEAD_ROOM).ok_or(Unwritten)?.copy_from_slice(&head[..head_len]);
        let sum = checksum(self.out.get(start..self.at).ok_or(Unwritten)?);
        let trailer = [b'1', b'0', b'=', b'0' + sum / 100, b'0' + sum / 10 % 10, b'0' + sum % 10, SOH];
        self.put(&trailer);
        if self.full { Err(Unwritten) } else { Ok((start, self.at)) }
    }

    fn tag(&mut self, tag: u32) {
        let _ = write!(Text(self), "{tag}=");
    }

    fn put(&mut self, bytes: &[u8]) {
        match self.out.get_mut(self.at..self.at + bytes.len()) {
            Some(room) => {
                room.copy_from_slice(bytes);
                self.at += bytes.len();
            }
            None => self.full = true,
        }
    }
}

struct Text<'w, 'a>(&'w mut Writer<'a>);

impl Write for Text<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.put(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FieldIndex, Frame, frame};
    use super::*;
    use crate::fix::tags;
    use proptest::prelude::*;

    #[test]
    fn heartbeat_is_what_fix_has() {
        let mut out = [0; 128];
        let mut writer = Writer::new(&mut out);
        let message = writer.field(tags::MSG_TYPE, b"0").finish(b"FIX.4.4").unwrap();
        assert_eq!(message.escape_ascii().to_string(), r"8=FIX.4.4\x019=5\x0135=0\x0110=163\x01");
    }

    #[test]
    fn message_that_does_not_fit_is_an_error() {
        for len in 0..HEAD_ROOM + 5 + 7 {
            let mut out = vec![0; len];
            assert_eq!(Writer::new(&mut out).field(35, b"0").finish(b"FIX.4.4"), Err(Unwritten), "{len}");
        }
    }

    #[test]
    fn soh_in_text_begins_no_field() {
        let mut out = [0; 128];
        let mut writer = Writer::new(&mut out);
        let message = writer.field(35, b"B").field(58, b"a\x0154=1").finish(b"FIX.4.4").unwrap().to_vec();
        let mut index = FieldIndex::new(8);
        let message = index.parse(&message).unwrap();
        assert_eq!((message.get(58), message.get(54)), (Some(&b"a54=1"[..]), None));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            texts in proptest::collection::vec((1000_u32..99_999_999, "[ -~]{1,90}"), 0..20),
            data in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut out = [0; 4096];
            let mut writer = Writer::new(&mut out);
            writer.field(35, b"B");
            let (before, behind) = texts.split_at(texts.len() / 2);
            // Tags of data fields have rules of their own.
            let texts = |half: &[(u32, String)]| half.iter().filter(|(tag, _)| *tag > 2048).cloned().collect::<Vec<_>>();
            let (before, behind) = (texts(before), texts(behind));
            before.iter().for_each(|(tag, text)| { writer.field(*tag, text.as_bytes()); });
            writer.data(95, 96, &data);
            behind.iter().for_each(|(tag, text)| { writer.field(*tag, text.as_bytes()); });
            let bytes = writer.finish(b"FIX.4.4").unwrap();
            prop_assert_eq!(frame(bytes, 4096), Frame::Message { len: bytes.len() });
            let mut index = FieldIndex::new(64);
            let message = index.parse(bytes).unwrap();
            prop_assert_eq!(message.get(96), Some(&data[..]));
            let read = message.fields().iter().map(|field| (field.tag(), message.value(*field).to_vec()));
            let read: Vec<_> = read.filter(|(tag, _)| *tag > 2048).collect();
            let wrote: Vec<_> = before.into_iter().chain(behind).map(|(tag, text)| (tag, text.into_bytes())).collect();
            prop_assert_eq!(read, wrote);
        }
    }
}
