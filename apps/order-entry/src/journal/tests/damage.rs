use super::*;

#[test]
fn records_come_back_in_order_with_their_times() {
    let (memory, _) = written(9);
    let expected: Vec<_> = (0..9_u8).map(|len| (u64::from(len) + 1, u16::from(len), vec![len; len.into()])).collect();
    assert_eq!(read(&memory), expected);
    assert!(Records::new(&memory).unwrap().all(|record| record.stamp == STAMP));
}

#[test]
fn journal_cut_at_any_byte_has_all_records_before_the_cut() {
    let (memory, ends) = written(9);
    let last = *ends.last().unwrap();
    for cut in HEADER_LEN..=last {
        let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
        assert_eq!(read(&memory[..cut]).len(), whole, "cut at {cut}");
        // The same cut, in a file that was preallocated: zeros follow.
        let mut zeroed = memory.clone();
        zeroed[cut..].fill(0);
        let found = read(&zeroed).len();
        // A record whose last bytes are zeros is whole without them.
        let is_whole = zeroed == memory || zeroed[..ends[found]] == memory[..ends[found]];
        assert!(found >= whole && is_whole, "zeros from {cut}");
    }
}

#[test]
fn journal_shorter_than_its_header_is_refused() {
    let (memory, _) = written(1);
    for cut in 0..HEADER_LEN {
        assert_eq!(Records::new(&memory[..cut]).unwrap_err(), JournalError::Short);
    }
}

#[test]
fn each_flipped_bit_ends_the_journal_before_its_record() {
    let (memory, ends) = written(9);
    let last = *ends.last().unwrap();
    for byte in HEADER_LEN..last {
        for bit in 0..8 {
            let mut damaged = memory.clone();
            damaged[byte] ^= 1 << bit;
            let whole = ends.iter().filter(|end| **end <= byte).count() - 1;
            assert_eq!(read(&damaged).len(), whole, "bit {bit} of byte {byte}");
        }
    }
}

/// The memory with the header that a program of another version gave it.
fn of_version(mut memory: Vec<u8>, version: u32) -> Vec<u8> {
    memory[8..12].copy_from_slice(&version.to_le_bytes());
    memory[12..16].fill(0);
    let crc = crc32c::crc32c(&memory[..HEADER_LEN]);
    memory[12..16].copy_from_slice(&crc.to_le_bytes());
    memory
}

#[test]
fn journal_of_an_older_version_goes_on_as_one_that_its_program_refuses() {
    // As version 1 wrote it: the first record's sum starts from the header's.
    let (memory, _) = written(9);
    for version in [1, 2] {
        let old = of_version(memory.clone(), version);
        let mut replayed = 0;
        let (mut journal, _) = Journal::recover(old, 0, |_| replayed += 1).unwrap();
        journal.upgrade();
        assert_eq!((replayed, journal.memory()), (9, &memory));
        assert_eq!(journal.memory()[8..12], 3_u32.to_le_bytes());
    }
    assert_eq!(Records::new(&of_version(memory, 4)).unwrap_err(), JournalError::Version(4));
}

#[test]
fn first_record_of_version_1_has_the_sum_of_its_header_before_it() {
    let (memory, ends) = written(1);
    let old = of_version(memory, 1);
    let header = u32::from_le_bytes(old[12..16].try_into().unwrap());
    let sum = u32::from_le_bytes(old[HEADER_LEN..HEADER_LEN + 4].try_into().unwrap());
    assert_eq!(sum, crc32c::crc32c_append(header, &old[HEADER_LEN + 8..ends[1]]));
}

#[test]
fn each_flipped_bit_of_the_file_header_is_refused() {
    let (memory, _) = written(1);
    for bit in 0..HEADER_LEN * 8 {
        let mut damaged = memory.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Records::new(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn recovered_journal_goes_on_behind_the_last_good_record() {
    let (mut memory, ends) = written(9);
    memory[ends[5] + 42..].fill(0xaa);
    let mut replayed = 0;
    let (mut journal, recovery) = Journal::recover(memory, 0, |_| replayed += 1).unwrap();
    assert_eq!((replayed, recovery), (5, Recovery { records: 5, tail: Tail::Torn }));
    assert_eq!(journal.append(99, STAMP, b"again"), Ok(6));
    let records = read(journal.memory());
    assert_eq!(records.last(), Some(&(6, 99, b"again".to_vec())));
    assert_eq!(records.len(), 6);
}

/// A power cut may lose the page of one record and keep that of the next.
#[test]
fn record_behind_a_lost_one_never_comes_back() {
    let (memory, ends) = written(9);
    let mut torn = memory.clone();
    torn[ends[5]..ends[6]].fill(0);
    let (mut journal, _) = Journal::recover(torn, 0, |_| ()).unwrap();
    // As long as the lost one, so that the old records follow it at their places.
    journal.append(5, STAMP, b"other").unwrap();
    assert_eq!(journal.end(), ends[6]);
    assert_eq!(read(journal.memory()).len(), 6);
}

#[test]
fn records_of_an_older_journal_in_the_same_memory_never_come_back() {
    let (memory, _) = written(9);
    let journal = Journal::create(memory, 78, 1, 0).unwrap();
    assert_eq!(read(journal.memory()), []);
}

#[test]
fn tail_tells_zeros_from_bytes() {
    let (memory, ends) = written(3);
    let tail = |memory: &[u8]| {
        let mut records = Records::new(memory).unwrap();
        records.by_ref().for_each(drop);
        records.tail()
    };
    assert_eq!(tail(&memory), Tail::Clean);
    assert_eq!(tail(&memory[..ends[3]]), Tail::Full);
    assert_eq!(tail(&memory[..ends[3] - 1]), Tail::Torn);
}

#[test]
fn full_journal_refuses_a_request_before_an_answer() {
    let mut journal = Journal::create(vec![0; HEADER_LEN + 3 * 48], 77, 1, 2 * 48).unwrap();
    assert_eq!(journal.append_request(1, STAMP, &[1; 8]), Ok(1));
    assert_eq!(journal.append_request(1, STAMP, &[1; 8]), Err(Full { needed: 3 * 48, left: 2 * 48 }));
    assert_eq!(journal.append(1, STAMP, &[1; 8]), Ok(2));
    assert_eq!(journal.append(1, STAMP, &[1; 8]), Ok(3));
    assert_eq!(journal.append(1, STAMP, &[1; 8]), Err(Full { needed: 48, left: 0 }));
    assert_eq!(read(journal.memory()).len(), 3);
}

#[test]
fn follower_that_is_fed_by_single_bytes_has_the_same_journal() {
    let mut journal = empty(4_096);
    let mut follower = Journal::create(vec![0; 4_096], 77, 1, 0).unwrap();
    for len in 0..5 {
        journal.append(len, STAMP, &vec![7; usize::from(len)]).unwrap();
    }
    let (mut pending, mut seen) = (Vec::new(), 0);
    for byte in journal.written(HEADER_LEN) {
        pending.push(*byte);
        let taken = follower.follow(&pending, |_| seen += 1).unwrap();
        pending.drain(..taken);
    }
    assert_eq!((seen, pending.len()), (5, 0));
    assert_eq!(follower.memory(), journal.memory());
    assert_eq!(follower.next_seq(), journal.next_seq());
}

#[test]
fn follower_refuses_bytes_of_another_journal() {
    let mut journal = empty(4_096);
    journal.append(1, STAMP, b"one").unwrap();
    let mut follower = Journal::create(vec![0; 4_096], 78, 1, 0).unwrap();
    assert_eq!(follower.follow(journal.written(HEADER_LEN), |_| ()), None);
    assert_eq!(follower.end(), HEADER_LEN);
}

#[test]
fn follower_without_room_refuses() {
    let mut journal = empty(4_096);
    journal.append(1, STAMP, b"one").unwrap();
    let mut follower = Journal::create(vec![0; HEADER_LEN + 40], 77, 1, 0).unwrap();
    assert_eq!(follower.follow(journal.written(HEADER_LEN), |_| ()), None);
}

/// What lies behind the last good record of `memory`, with zeros up to the end of a file.
fn remains(mut memory: Vec<u8>) -> Option<Remains> {
    memory.resize(memory.len() + 3 * 4_096, 0);
    let mut records = Records::new(&memory).unwrap();
    records.by_ref().for_each(drop);
    records.remains()
}

#[test]
fn record_that_is_cut_short_at_any_byte_is_no_damage() {
    let (memory, ends) = written(9);
    assert_eq!(remains(memory.clone()), None, "a journal that ends as it should");
    let (start, end) = (ends[8], ends[9]);
    for cut in start..end {
        let found = remains(memory[..cut].to_vec());
        assert!(found.is_none_or(|found| found.start == start && !found.is_damage), "cut at {cut}: {found:?}");
    }
    assert!(remains(memory[..end - 1].to_vec()).is_some() || memory[end - 1] == 0);
}

#[test]
fn records_behind_a_bad_one_are_damage_and_none_of_them_is_missed() {
    let (memory, ends) = written(9);
    let len = memory[..ends[9]].iter().rposition(|byte| *byte != 0).unwrap() + 1 - ends[4];
    let (mut flipped, mut lost) = (memory[..ends[9]].to_vec(), memory[..ends[9]].to_vec());
    flipped[ends[4] + 10] ^= 1;
    lost[ends[4]..ends[5]].fill(0);
    for damaged in [flipped, lost] {
        assert_eq!(remains(damaged), Some(Remains { start: ends[4], len, is_damage: true }));
    }
}
