//! The receive queue: where messages of the peer go, one after the other.

use super::work::{MESSAGE_MAX, PostError, SGES_MAX, Sge};

/// A ring of receives. The first is in use while a message arrives, and leaves when it is
/// complete. As of a send queue the first place is here, and a queue that has become empty begins
/// there again.
#[repr(C)]
pub(crate) struct ReceiveQueue {
    head: u32,
    tail: u32,
    pub(super) depth: u32,
    /// The other places: one less than a power of two, so that positions may wrap.
    mask: u32,
    first: ReceiveWqe,
    rest: Box<[ReceiveWqe]>,
    /// Receives that were flushed and whose completions were not polled: they keep their places.
    pub(super) flushed: u32,
    /// Of a queue pair's: the place of the shared queue that its receives come from, if they do. It
    /// is here because it fills a line.
    pub(super) srq: u32,
}

/// A receive. Its pieces have bytes each; behind the last is one without, if there is room.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ReceiveWqe {
    pub(crate) wr_id: u64,
    sges: [Sge; SGES_MAX],
}

/// Checks the pieces of a receive.
#[inline]
pub(crate) fn check_pieces(list: &[Sge]) -> Result<(), PostError> {
    if list.len() > SGES_MAX {
        return Err(PostError::TooManySges);
    }
    // So a message that fits is none too long, and its length fits into 32 bits.
    let len: u64 = list.iter().map(|sge| u64::from(sge.len)).sum();
    if len > MESSAGE_MAX.into() { Err(PostError::Length) } else { Ok(()) }
}

impl ReceiveQueue {
    pub(crate) fn new(depth: u32) -> Self {
        let mask = depth.next_power_of_two() - 1;
        let rest = vec![ReceiveWqe::default(); mask as usize].into();
        Self { head: 0, tail: 0, depth, mask, first: ReceiveWqe::default(), rest, flushed: 0, srq: 0 }
    }

    /// For the receive of a shared queue that is in use.
    pub(super) fn of_shared(srq: u32) -> Self {
        Self { srq, ..Self::new(1) }
    }

    #[inline]
    pub(crate) fn post(&mut self, wr_id: u64, list: &[Sge]) -> Result<(), PostError> {
        if self.len() >= self.depth {
            return Err(PostError::QueueFull);
        }
        check_pieces(list)?;
        let place = self.next_place();
        place.wr_id = wr_id;
        let mut places = place.sges.iter_mut();
        list.iter().filter(|sge| sge.len > 0).zip(&mut places).for_each(|(sge, place)| *place = *sge);
        if let Some(behind) = places.next() {
            behind.len = 0;
        }
        Ok(())
    }

    /// Puts in a receive that was taken out of a shared queue.
    #[inline]
    pub(crate) fn put(&mut self, receive: ReceiveWqe) {
        *self.next_place() = receive;
    }

    /// Puts a receive that was taken out back to the front; false where others fill the queue.
    #[cold]
    pub(crate) fn put_back(&mut self, receive: ReceiveWqe) -> bool {
        if self.len() >= self.depth {
            return false;
        }
        if self.len() == 0 {
            self.put(receive);
            return true;
        }
        self.head = self.head.wrapping_sub(1);
        match self.place(self.head) {
            0 => self.first = receive,
            place => self.rest[place - 1] = receive,
        }
        true
    }

    /// The place of the next receive, which is in the queue from now on.
    #[inline]
    fn next_place(&mut self) -> &mut ReceiveWqe {
        if self.len() == 0 {
            (self.head, self.tail) = (0, 0);
        }
        let place = self.place(self.tail);
        self.tail = self.tail.wrapping_add(1);
        match place {
            0 => &mut self.first,
            place => &mut self.rest[place - 1],
        }
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<&ReceiveWqe> {
        match self.place(self.head) {
            _ if self.len() == 0 => None,
            0 => Some(&self.first),
            place => Some(&self.rest[place - 1]),
        }
    }

    #[inline]
    const fn place(&self, position: u32) -> usize {
        (position & self.mask) as usize
    }

    /// Takes the first out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u64> {
        let wr_id = self.first()?.wr_id;
        self.head = self.head.wrapping_add(1);
        Some(wr_id)
    }

    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        self.tail.wrapping_sub(self.head)
    }
}

impl ReceiveWqe {
    /// Its pieces, and maybe one without bytes behind them, or more that mean nothing.
    #[inline]
    pub(crate) const fn sges(&self) -> &[Sge] {
        &self.sges
    }

    /// Bytes that it can take.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.sges.iter().take_while(|sge| sge.len > 0).map(|sge| u64::from(sge.len)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(queue: &mut ReceiveQueue, wr_id: u64, lens: &[u32]) -> Result<(), PostError> {
        let sges: Vec<_> = lens.iter().map(|len| Sge { address: wr_id, len: *len, lkey: 1 }).collect();
        queue.post(wr_id, &sges)
    }

    #[test]
    fn receives_come_out_in_the_order_of_their_posts_whatever_the_place_they_begin_at() {
        let mut queue = ReceiveQueue::new(3);
        let (mut posted, mut taken) = (0, 0);
        for round in 0..100 {
            for _ in 0..=round % 4 {
                let has_room = posted - taken < 3;
                assert_eq!(post(&mut queue, posted, &[8]), if has_room { Ok(()) } else { Err(PostError::QueueFull) });
                posted += u64::from(has_room);
            }
            for _ in 0..=round % 3 {
                let expected = (taken < posted).then_some(taken);
                assert_eq!(queue.pop(), expected);
                taken += u64::from(expected.is_some());
            }
        }
    }

    #[test]
    fn pieces_of_an_earlier_receive_do_not_lengthen_a_later_one() {
        let mut queue = ReceiveQueue::new(1);
        for (lens, len) in [(&[5, 6, 7, 8][..], 26), (&[0, 3, 0, 4], 7), (&[9], 9), (&[], 0), (&[0, 0], 0)] {
            post(&mut queue, 1, lens).unwrap();
            assert_eq!(queue.first().unwrap().len(), len);
            queue.pop();
        }
    }
}
