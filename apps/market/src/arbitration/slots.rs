//! Copies of packets in memory that is allocated once: for a caller whose buffers are too few to
//! wait.

/// Room for a fixed number of packets of a fixed length. By default it has none.
#[derive(Debug, Default)]
pub struct Slots {
    bytes: Vec<u8>,
    lens: Vec<usize>,
    free: Vec<u32>,
    len_max: usize,
}

/// One copied packet. It cannot be cloned: it is returned to its [`Slots`] once.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot(u32);

impl Slots {
    /// Room for `count` packets of at most `len_max` bytes: `count * len_max` bytes and 12 more for
    /// each.
    pub fn new(count: u32, len_max: usize) -> Self {
        let count_usize = count as usize;
        Self {
            bytes: vec![0; count_usize * len_max],
            lens: vec![0; count_usize],
            free: (0..count).rev().collect(),
            len_max,
        }
    }

    /// Copies a packet. `None` where all slots are taken or the packet is too long.
    pub fn copy_in(&mut self, packet: &[u8]) -> Option<Slot> {
        if packet.len() > self.len_max {
            return None;
        }
        let slot = self.free.pop()?;
        let start = slot as usize * self.len_max;
        self.bytes[start..start + packet.len()].copy_from_slice(packet);
        self.lens[slot as usize] = packet.len();
        Some(Slot(slot))
    }

    /// The packet in a slot.
    pub fn get(&self, slot: &Slot) -> &[u8] {
        let start = slot.0 as usize * self.len_max;
        &self.bytes[start..start + self.lens[slot.0 as usize]]
    }

    /// Frees a slot.
    pub fn free(&mut self, slot: Slot) {
        self.free.push(slot.0);
    }

    /// Slots that are free.
    pub fn free_count(&self) -> usize {
        self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_and_too_long_are_refused_and_a_freed_slot_is_used_again() {
        let mut slots = Slots::new(1, 4);
        assert_eq!(slots.copy_in(b"12345"), None);
        let slot = slots.copy_in(b"abc").unwrap();
        assert_eq!(slots.copy_in(b"x"), None);
        assert_eq!(slots.get(&slot), b"abc");
        slots.free(slot);
        assert!(slots.copy_in(b"x").is_some());
    }
}
