//! The formats as recorders write them, and malformed ones: every truncation, every byte order,
//! false lengths.

use std::io::{self, Write as _};

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// A record with its bytes copied out, to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    timestamp_ns: u64,
    original_len: u32,
    bytes: Vec<u8>,
}

fn owned(timestamp_ns: u64, bytes: &[u8]) -> Owned {
    Owned { timestamp_ns, original_len: bytes.len() as u32, bytes: bytes.to_vec() }
}

/// All records of a capture and how it ended.
fn read(file: &[u8]) -> (Vec<Owned>, Result<Option<Truncation>, Error>) {
    match Reader::new(file) {
        Ok(reader) => drain(reader),
        Err(error) => (Vec::new(), Err(error)),
    }
}

fn drain<R: io::Read>(mut reader: Reader<R>) -> (Vec<Owned>, Result<Option<Truncation>, Error>) {
    let mut records = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(record)) => records.push(Owned {
                timestamp_ns: record.timestamp_ns,
                original_len: record.original_len,
                bytes: record.bytes.to_vec(),
            }),
            Ok(None) => return (records, Ok(reader.end().expect("ended without an error").truncated)),
            Err(error) => {
                assert!(matches!(reader.next(), Ok(None)), "an error is told once");
                assert_eq!(reader.end(), None);
                return (records, Err(error));
            }
        }
    }
}

fn records_of(file: &[u8]) -> Vec<Owned> {
    let (records, end) = read(file);
    assert_eq!(end.expect("a sound capture"), None);
    records
}

fn problem_of(file: &[u8]) -> Problem {
    read(file).1.expect_err("a damaged capture").problem
}

/// Writes numbers in the byte order that a test chose.
#[derive(Clone, Copy)]
struct Order {
    big: bool,
}

const LITTLE: Order = Order { big: false };
const BIG: Order = Order { big: true };

impl Order {
    fn u16(self, value: u16) -> [u8; 2] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32s(self, values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|value| self.u32(*value)).collect()
    }

    /// A classic file header.
    fn classic(self, magic: u32, link_type: u32) -> Vec<u8> {
        [&self.u32(magic)[..], &self.u16(2), &self.u16(4), &self.u32s(&[0, 0, 65_535, link_type])].concat()
    }

    /// A pcapng block with its lengths and padding.
    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let padding = body.len().next_multiple_of(4) - body.len();
        let len = (12 + body.len() + padding) as u32;
        [&self.u32s(&[kind, len])[..], body, &[0; 3][..padding], &self.u32(len)].concat()
    }

    fn section(self) -> Vec<u8> {
        let body = [&self.u32(0x1a2b_3c4d)[..], &self.u16(1), &self.u16(0), &[0xff; 8]].concat();
        self.block(0x0a0d_0d0a, &body)
    }

    fn interface(self, link_type: u16, snaplen: u32, options: &[u8]) -> Vec<u8> {
        self.block(1, &[&self.u16(link_type)[..], &[0; 2], &self.u32(snaplen), options].concat())
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let padding = value.len().next_multiple_of(4) - value.len();
        [&self.u16(code)[..], &self.u16(value.len() as u16), value, &[0; 3][..padding]].concat()
    }

    fn enhanced(self, interface: u32, ticks: u64, packet: &[u8]) -> Vec<u8> {
        let len = packet.len() as u32;
        let head = self.u32s(&[interface, (ticks >> 32) as u32, ticks as u32, len, len]);
        self.block(6, &[&head[..], packet].concat())
    }

    /// One interface with nanoseconds and the given blocks after it.
    fn pcapng(self, blocks: &[Vec<u8>]) -> Vec<u8> {
        [self.section(), self.interface(1, 0, &self.option(9, &[9])), blocks.concat()].concat()
    }
}

fn small_classic() -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file);
    writer.write(1, b"one");
    writer.write(2, b"");
    writer.write(3, b"three");
    writer.finish().unwrap();
    drop(writer);
    file
}

#[test]
fn empty_file_is_not_a_capture() {
    let error = Reader::new(&b""[..]).err().unwrap();
    assert!(error.to_string().contains("it is empty"), "{error}");
}

#[test]
fn text_is_refused_with_its_beginning() {
    let error = Reader::new(&b"hello, world: not a capture"[..]).err().unwrap();
    assert_eq!(
        error.to_string(),
        "the capture is not a pcap or pcapng capture: it begins with the text \"hello, world: no\"; \
         give a file that tcpdump -w or Wireshark wrote"
    );
}

#[test]
fn program_and_foreign_compression_are_called_by_name() {
    for (begin, name) in [(&b"\x7fELF\x02\x01\x01"[..], "a program"), (b"\x28\xb5\x2f\xfd\0\0", "zstd")] {
        let error = Reader::new(begin).err().unwrap().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn missing_file_is_named() {
    let error = Reader::open("/no/such/file.pcap").err().unwrap().to_string();
    assert!(error.starts_with("cannot open the capture /no/such/file.pcap: "), "{error}");
}

#[test]
fn folder_is_refused() {
    let error = Reader::open("/").err().unwrap().to_string();
    assert!(error.contains("not a folder"), "{error}");
}

#[test]
fn foreign_link_type_is_named() {
    let error = Reader::new(&LITTLE.classic(0xa1b2_c3d4, 113)[..]).err().unwrap();
    assert!(error.to_string().contains("link type 113 (Linux cooked"), "{error}");
}

#[test]
fn foreign_interface_is_harmless_until_it_has_a_packet() {
    let mut file = LITTLE.pcapng(&[LITTLE.interface(113, 0, &[]), LITTLE.enhanced(0, 5, b"ethernet")]);
    assert_eq!(records_of(&file), [owned(5, b"ethernet")]);
    file.extend(LITTLE.enhanced(1, 6, b"cooked"));
    assert!(matches!(problem_of(&file), Problem::LinkType(113)));
}

#[test]
fn every_cut_of_a_classic_file_gives_the_records_before_it() {
    let file = small_classic();
    let whole = records_of(&file);
    let ends = [24, 43, 59, 80];
    assert_eq!(file.len(), 80);
    for len in 4..file.len() {
        let (records, end) = read(&file[..len]);
        let count = ends[1..].iter().filter(|end| **end <= len).count();
        assert_eq!(records, whole[..count], "cut at {len}");
        let truncation = end.unwrap();
        assert_eq!(truncation.is_none(), ends.contains(&len), "cut at {len}");
        let begin = if len < 24 { 0 } else { ends[count] as u64 };
        assert!(truncation.is_none_or(|truncation| truncation.offset == begin), "cut at {len}: {truncation:?}");
    }
}

#[test]
fn every_cut_of_a_pcapng_file_gives_the_records_before_it() {
    let blocks = [
        LITTLE.enhanced(0, 1, b"one"),
        LITTLE.block(0x0bad, &[7; 64]),
        LITTLE.section(),
        LITTLE.interface(1, 0, &[]),
        LITTLE.enhanced(0, 2, b"second"),
    ];
    let file = LITTLE.pcapng(&blocks);
    let mut ends = vec![LITTLE.section().len(), LITTLE.pcapng(&[]).len()];
    for block in &blocks {
        ends.push(ends[ends.len() - 1] + block.len());
    }
    let whole = records_of(&file);
    for len in 4..file.len() {
        let (records, end) = read(&file[..len]);
        let count = usize::from(len >= ends[2]);
        assert_eq!(records, whole[..count], "cut at {len}");
        let begin = ends.iter().rev().find(|end| **end <= len).copied().unwrap_or(0);
        let offset = end.unwrap().map(|truncation| truncation.offset as usize);
        assert_eq!(offset, (begin != len).then_some(begin), "cut at {len}");
    }
}

#[test]
fn cut_gzip_gives_what_it_holds_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("named-without-gz");
    let mut gzip = GzEncoder::new(Vec::new(), Compression::none());
    gzip.write_all(&small_classic()).unwrap();
    let packed = gzip.finish().unwrap();
    // Eight bytes of checksum and length end the stream: without them all records are still there.
    for (len, expected) in
        [(packed.len(), None), (packed.len() - 4, Some(Cut::Gzip)), (packed.len() - 9, Some(Cut::Packet))]
    {
        std::fs::write(&path, &packed[..len]).unwrap();
        let (records, end) = drain(Reader::open(&path).unwrap());
        assert_eq!(records.len(), if expected == Some(Cut::Packet) { 2 } else { 3 });
        assert_eq!(end.unwrap().map(|truncation| truncation.what), expected);
    }
}

#[test]
fn gzip_of_several_members_is_one_capture() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rotated.pcap.gz");
    let file = small_classic();
    let mut packed = Vec::new();
    for part in [&file[..30], &file[30..]] {
        let mut gzip = GzEncoder::new(&mut packed, Compression::fast());
        gzip.write_all(part).unwrap();
        gzip.finish().unwrap();
    }
    std::fs::write(&path, packed).unwrap();
    assert_eq!(drain(Reader::open(&path).unwrap()).0, records_of(&file));
}

#[test]
fn hostile_record_length_ends_the_reading() {
    for captured in [RECORD_LEN_MAX as u32 + 1, u32::MAX] {
        let mut file = small_classic();
        file.extend(LITTLE.u32s(&[0, 0, captured, 64]));
        let (records, end) = read(&file);
        assert_eq!(records.len(), 3);
        let error = end.unwrap_err();
        assert!(matches!(error.problem(), Problem::RecordLength(len) if *len == captured));
        assert_eq!(error.offset(), 80);
    }
}

#[test]
fn snaplen_in_the_header_is_not_believed() {
    let mut file = LITTLE.classic(0xa1b2_3c4d, 1);
    file[16..20].copy_from_slice(&[1, 0, 0, 0]);
    file.extend(LITTLE.u32s(&[0, 9, 4, 4]));
    file.extend(b"four");
    assert_eq!(records_of(&file), [owned(9, b"four")]);
}

#[test]
fn impossible_block_lengths_end_the_reading() {
    for (kind, len) in
        [(6, 0), (6, 8), (6, 28), (6, 33), (6, u32::MAX), (1, 16), (3, 12), (2, 28), (0xbad, 8), (0xbad, 13)]
    {
        let mut file = LITTLE.pcapng(&[LITTLE.enhanced(0, 1, b"sound")]);
        file.extend(LITTLE.u32s(&[kind, len]));
        file.resize(file.len() + 64, 0);
        let (records, end) = read(&file);
        assert_eq!(records.len(), 1);
        assert!(
            matches!(end.unwrap_err().problem, Problem::BlockLength(reported) if reported == len),
            "type {kind}, length {len}"
        );
    }
}

#[test]
fn unknown_block_of_4_gib_is_a_cut_not_an_allocation() {
    let mut file = LITTLE.pcapng(&[]);
    let begin = file.len() as u64;
    file.extend(LITTLE.u32s(&[0xbad, u32::MAX - 3]));
    let (_, end) = read(&file);
    assert_eq!(end.unwrap(), Some(Truncation { offset: begin, what: Cut::Block }));
}

#[test]
fn differing_block_lengths_end_the_reading() {
    for kind in [1, 2, 3, 6, 0xbad] {
        let mut block = LITTLE.block(kind, &[0; 32]);
        let last = block.len() - 4;
        block[last] += 4;
        assert!(matches!(problem_of(&LITTLE.pcapng(&[block])), Problem::BlockLengthsDiffer(44, 48)), "type {kind}");
    }
}

#[test]
fn packet_longer_than_its_block_ends_the_reading() {
    let mut block = LITTLE.enhanced(0, 1, b"four");
    block[20] = 9;
    assert!(matches!(problem_of(&LITTLE.pcapng(&[block])), Problem::PacketOverBlock(9, 4)));
}

#[test]
fn packet_of_an_unknown_interface_ends_the_reading() {
    assert!(matches!(problem_of(&LITTLE.pcapng(&[LITTLE.enhanced(1, 0, b"")])), Problem::UnknownInterface(1)));
}

#[test]
fn option_past_its_block_ends_the_reading() {
    let option = [&LITTLE.u16(2)[..], &LITTLE.u16(40_000)].concat();
    let file = [LITTLE.section(), LITTLE.interface(1, 0, &option)].concat();
    assert!(matches!(problem_of(&file), Problem::OptionLength(2)));
}

#[test]
fn interfaces_without_end_are_refused() {
    let file = [LITTLE.section(), LITTLE.interface(1, 0, &[]).repeat(5_000)].concat();
    assert!(matches!(problem_of(&file), Problem::TooManyInterfaces));
}

#[test]
fn section_with_a_bad_magic_is_refused() {
    let mut file = LITTLE.section();
    file[8] = 0;
    assert!(matches!(problem_of(&file), Problem::ByteOrder(_)));
}

#[test]
fn classic_is_read_in_both_byte_orders_and_units() {
    for order in [LITTLE, BIG] {
        for (magic, expected) in [(0xa1b2_c3d4, 7_000_005_000), (0xa1b2_3c4d, 7_000_000_005)] {
            let mut file = order.classic(magic, 1);
            file.extend(order.u32s(&[7, 5, 4, 4]));
            file.extend(b"four");
            assert_eq!(records_of(&file), [owned(expected, b"four")]);
        }
    }
}

#[test]
fn sections_may_change_the_byte_order_and_forget_interfaces() {
    let one = BIG.pcapng(&[BIG.enhanced(0, 1, b"big")]);
    let two = LITTLE.pcapng(&[LITTLE.enhanced(0, 2, b"little")]);
    assert_eq!(records_of(&[one.clone(), two].concat()), [owned(1, b"big"), owned(2, b"little")]);
    let orphan = [one, LITTLE.section(), LITTLE.enhanced(0, 2, b"")].concat();
    assert!(matches!(problem_of(&orphan), Problem::UnknownInterface(0)));
}

#[test]
fn resolution_and_offset_of_an_interface_are_applied() {
    let check = |options: &[u8], ticks: u64, expected: u64| {
        let file = [LITTLE.section(), LITTLE.interface(1, 0, options), LITTLE.enhanced(0, ticks, b"x")].concat();
        assert_eq!(records_of(&file)[0].timestamp_ns, expected, "{options:?}");
    };
    check(&[], 3, 3_000);
    check(&LITTLE.option(9, &[0]), 3, 3_000_000_000);
    check(&LITTLE.option(9, &[9]), u64::MAX, u64::MAX);
    check(&LITTLE.option(9, &[6]), u64::MAX, u64::MAX);
    check(&LITTLE.option(9, &[12]), 3_999, 3);
    check(&LITTLE.option(9, &[127]), 1 << 63, 0);
    check(&LITTLE.option(9, &[0x80 | 10]), 1_536, 1_500_000_000);
    check(&LITTLE.option(9, &[0xff]), u64::MAX, 0);
    check(&LITTLE.option(14, &2_i64.to_le_bytes()), 3, 2_000_003_000);
    check(&LITTLE.option(14, &(-1_i64).to_le_bytes()), 2_000_000, 1_000_000_000);
    check(&LITTLE.option(14, &i64::MIN.to_le_bytes()), 3, 0);
    // A name before, the end mark, and after it an option that must not count.
    let options = [LITTLE.option(2, b"eth0!"), LITTLE.option(9, &[9]), vec![0; 4], LITTLE.option(9, &[0])].concat();
    check(&options, 3, 3);
}

#[test]
fn simple_and_obsolete_packets_are_read() {
    let simple = LITTLE.block(3, &[&LITTLE.u32(9)[..], b"abcd"].concat());
    let obsolete =
        LITTLE.block(2, &[&LITTLE.u16(0)[..], &LITTLE.u16(77), &LITTLE.u32s(&[0, 5, 3, 8]), b"old"].concat());
    let file = [LITTLE.section(), LITTLE.interface(1, 4, &[]), obsolete, simple].concat();
    let expected = [
        Owned { timestamp_ns: 5_000, original_len: 8, bytes: b"old".to_vec() },
        Owned { timestamp_ns: 5_000, original_len: 9, bytes: b"abcd".to_vec() },
    ];
    assert_eq!(records_of(&file), expected);
}

#[test]
fn options_of_a_packet_are_not_part_of_it() {
    let head = LITTLE.u32s(&[0, 0, 5, 3, 3]);
    let block = LITTLE.block(6, &[&head[..], b"abc\0", &LITTLE.option(1, b"a comment")].concat());
    assert_eq!(records_of(&LITTLE.pcapng(&[block])), [owned(5, b"abc")]);
}

#[test]
fn record_cut_by_snaplen_is_flagged() {
    let mut file = LITTLE.classic(0xa1b2_c3d4, 1);
    file.extend(LITTLE.u32s(&[0, 0, 2, 60, 0xffff]));
    let mut reader = Reader::new(&file[..42]).unwrap();
    assert!(reader.next().unwrap().unwrap().is_cut());
}

/// Returns at most this many bytes per read, as a pipe does.
struct Drip<'a>(&'a [u8], usize);

impl io::Read for Drip<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = self.1.min(into.len());
        self.0.read(&mut into[..len])
    }
}

#[test]
fn records_are_whole_across_reads_of_any_length() {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file);
    // Three windows, so that records lie across their borders.
    for idx in 0..1_100_u32 {
        writer.write(u64::from(idx), &idx.to_le_bytes().repeat(350));
    }
    writer.finish().unwrap();
    drop(writer);
    for step in [1_000, 65_536, usize::MAX] {
        let (records, end) = drain(Reader::new(Drip(&file, step)).unwrap());
        assert_eq!(end.unwrap(), None);
        assert_eq!(records.len(), 1_100);
        for (idx, record) in (0_u32..).zip(&records) {
            assert_eq!(*record, owned(u64::from(idx), &idx.to_le_bytes().repeat(350)));
        }
    }
}

#[test]
fn gathered_pieces_are_one_frame() {
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file);
    writer.write_gather(9, &[b"he", b"", b"ader", b"payload"]);
    writer.finish().unwrap();
    drop(writer);
    assert_eq!(records_of(&file), [owned(9, b"headerpayload")]);
}

#[test]
fn frame_over_the_limit_is_cut_and_flagged() {
    let mut file = Vec::new();
    Writer::new(&mut file).write_gather(9, &[&vec![1; RECORD_LEN_MAX - 1], b"end"]);
    let records = records_of(&file);
    assert_eq!((records[0].bytes.len(), records[0].original_len as usize), (RECORD_LEN_MAX, RECORD_LEN_MAX + 2));
}

#[test]
fn frame_of_which_only_the_beginning_is_there_says_how_long_it_was() {
    let mut file = Vec::new();
    Writer::new(&mut file).write_cut(9, b"beginning", 1_500);
    let records = records_of(&file);
    assert_eq!((&*records[0].bytes, records[0].original_len), (&b"beginning"[..], 1_500));
}

#[test]
fn full_disk_is_told_at_finish() {
    /// Accepts this many bytes and then no more.
    struct Disk(usize);
    impl io::Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 < bytes.len() {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            self.0 -= bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::new(Disk(600_000));
    for _ in 0..1_000 {
        writer.write(0, &[0; 1_500]);
    }
    assert!(writer.lost() > 0);
    assert_eq!(writer.records() + writer.lost(), 1_000);
    let error = writer.finish().unwrap_err().to_string();
    assert!(error.contains("could not be written") && error.contains("No space left"), "{error}");
    assert!(writer.finish().is_ok(), "told once");
    writer.write(0, b"late");
    assert_eq!(writer.records() + writer.lost(), 1_001);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(frames in prop::collection::vec((0..u64::from(u32::MAX) * 1_000_000_000,
                                                               prop::collection::vec(any::<u8>(), 0..100)), 0..60)) {
        let mut file = Vec::new();
        let mut writer = Writer::new(&mut file);
        for (timestamp_ns, frame) in &frames {
            writer.write(*timestamp_ns, frame);
        }
        writer.finish().unwrap();
        drop(writer);
        let expected: Vec<_> = frames.iter().map(|(timestamp_ns, frame)| owned(*timestamp_ns, frame)).collect();
        prop_assert_eq!(records_of(&file), expected);
    }

    #[test]
    fn damaged_bytes_neither_panic_nor_hang(hits in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
                                            big: bool) {
        let order = if big { BIG } else { LITTLE };
        let files = [small_classic(), order.pcapng(&[order.enhanced(0, 1, b"one"), order.block(3, &[0; 8])])];
        for mut file in files {
            for (idx, value) in &hits {
                let idx = idx.index(file.len());
                file[idx] = *value;
            }
            let (records, _) = read(&file);
            prop_assert!(records.len() <= 3);
        }
    }
}

#[test]
fn exchange_captures_have_their_counts() {
    for (file, count, first_len, spans_s) in [
        ("iex_tops16_20170710_uat.pcap.gz", 13_022, None, 400),
        ("cboe_pitch_realtime_20140901.pcap", 739, None, 405),
        ("iex_tops_prod_20180103_truncated.pcapng", 2, Some(Cut::Block), 0),
    ] {
        let name = "exchange_captures_have_their_counts";
        let Some(path) = wirepath_captures::find(name, file) else { continue };
        let (records, end) = drain(Reader::open(path).unwrap());
        assert_eq!(records.len(), count, "{file}");
        assert_eq!(end.unwrap().map(|truncation| truncation.what), first_len, "{file}");
        let span = records[count - 1].timestamp_ns - records[0].timestamp_ns;
        assert_eq!(span / 1_000_000_000, spans_s, "{file}");
        assert!(records.iter().all(|record| record.bytes.len() == record.original_len as usize), "{file}");
    }
}
