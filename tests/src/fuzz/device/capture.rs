//! Captures: for any bytes the reader ends, reports how, and returns no byte that the file does not
//! have.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use wirepath::device::pcap::{End, Reader, Record, Writer};

/// One record, kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    timestamp_ns: u64,
    original_len: u32,
    bytes: Vec<u8>,
}

/// The result of reading a whole file: the records, and how it ended (`Err` holds the sentence).
type Walk = (Vec<Kept>, Result<Option<End>, String>);

/// pcap or pcapng, as the first bytes determine.
pub(in crate::fuzz) fn pcap(data: &[u8]) {
    let whole = walk(Reader::new(data).map_err(|error| error.to_string()));
    let (records, end) = &whole;
    assert!(records.iter().map(|record| record.bytes.len()).sum::<usize>() <= data.len());
    assert!(records.iter().all(|record| record.bytes.len() <= Record::LEN_MAX));
    // Classic records have 16 bytes in front, simple packet blocks of pcapng 12 and 4 behind.
    assert!(records.len() <= data.len() / 16);
    assert!(end.as_ref().map_or(true, Option::is_some), "a walk that ended well says how");

    let dribble = walk(Reader::new(Dribble(data)).map_err(|error| error.to_string()));
    assert_eq!(whole, dribble, "the size of the reads makes a difference");
    rewrite(records);
}

/// The same behind gzip: input that is not gzip, damaged input, and input compressed here.
pub(in crate::fuzz) fn gzip(data: &[u8]) {
    let file = write_file(&[data]);
    let _ = walk(Reader::open(file.path()).map_err(|error| error.to_string()));

    let plain = walk(Reader::new(data).map_err(|error| error.to_string()));
    let half = data.len() / 2;
    // Two gzip members, as written by tools that append.
    let file = write_file(&[&compress(&data[..half]), &compress(&data[half..])]);
    let (records, end) = walk(Reader::open(file.path()).map_err(|error| error.to_string()));
    assert_eq!(records, plain.0, "compression makes a difference");
    assert_eq!(end.is_ok(), plain.1.is_ok());
}

fn walk<R: Read>(reader: Result<Reader<R>, String>) -> Walk {
    let mut records = Vec::new();
    let mut reader = match reader {
        Ok(reader) => reader,
        Err(sentence) => return (records, Err(sentence)),
    };
    let mut offset = reader.offset();
    loop {
        match reader.next() {
            Ok(Some(record)) => {
                let (timestamp_ns, original_len) = (record.timestamp_ns, record.original_len);
                records.push(Kept { timestamp_ns, original_len, bytes: record.bytes.to_vec() });
            }
            Ok(None) => {
                assert!(matches!(reader.next(), Ok(None)), "a capture ends once");
                return (records, Ok(reader.end()));
            }
            Err(error) => {
                assert!(matches!(reader.next(), Ok(None)), "an error ends the reading");
                assert!(reader.end().is_none());
                return (records, Err(error.to_string()));
            }
        }
        assert!(reader.offset() > offset, "a record takes bytes");
        offset = reader.offset();
    }
}

/// A file that our writer makes of the records reads the same, as far as the format can express
/// them.
fn rewrite(records: &[Kept]) {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file);
    for record in records {
        writer.write(record.timestamp_ns, &record.bytes);
    }
    writer.finish().expect("memory takes every write");
    drop(writer);
    let (again, end) = walk(Reader::new(&file[..]).map_err(|error| error.to_string()));
    assert_eq!(end, Ok(Some(End { truncated: None })));
    assert_eq!(again.len(), records.len());
    for (again, record) in again.iter().zip(records) {
        assert_eq!((&again.bytes, again.original_len as usize), (&record.bytes, record.bytes.len()));
        let fits = record.timestamp_ns / 1_000_000_000 <= u32::MAX.into();
        assert!(again.timestamp_ns == record.timestamp_ns || !fits);
    }
}

/// Returns one to seven bytes per read, like a slow pipe.
struct Dribble<'a>(&'a [u8]);

impl Read for Dribble<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = (self.0.len() % 7 + 1).min(into.len());
        self.0.read(&mut into[..len])
    }
}

fn compress(data: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(data).and_then(|()| encoder.finish()).expect("memory takes every write")
}

fn write_file(parts: &[&[u8]]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("the temporary directory takes a file");
    for part in parts {
        file.write_all(part).expect("the temporary directory takes a file");
    }
    file
}
