//! Mbufs, chains, views and second handles against plain vectors: for any operations of safe code,
//! each handle reads the bytes that it was made for, and at the end every buffer is free.

use crate::mem::*;

/// The handle, the bytes that it must show, and whether a chain in it may be held.
struct Live(Mbuf, Vec<u8>, bool);

struct Model {
    random: u64,
    pool: Pool,
    mbufs: Vec<Live>,
    helds: Vec<(Held, Vec<u8>)>,
}

fn flat<'a>(segments: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    segments.flatten().copied().collect()
}

impl Model {
    /// xorshift64* (Vigna 2014).
    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end
    }

    fn bytes(&mut self) -> Vec<u8> {
        let (len, byte) = (self.below(40), self.below(256) as u8);
        vec![byte; len]
    }

    fn step(&mut self) {
        let (kind, bytes) = (self.below(12), self.bytes());
        if kind == 0 || self.mbufs.is_empty() {
            if let Some(mbuf) = self.pool.alloc_copy(&bytes) {
                self.mbufs.push(Live(mbuf, bytes, false));
            }
            return;
        }
        let idx = self.below(self.mbufs.len());
        let Live(mut mbuf, mut model, mut shared) = self.mbufs.swap_remove(idx);
        let cut = self.below(model.len() + 1);
        match kind {
            1 | 2 if !shared && !self.mbufs.is_empty() => {
                let Live(rest, rest_model, rest_shared) = self.mbufs.pop().unwrap();
                mbuf.attach(rest);
                model.extend(rest_model);
                shared = rest_shared;
            }
            3 => {
                self.helds.push((mbuf.hold(), model.clone()));
                shared = true;
            }
            4 => match self.pool.view(mbuf.hold()) {
                Ok(view) => {
                    self.mbufs.push(Live(view, model.clone(), true));
                    shared = true;
                }
                Err(held) => drop(held),
            },
            5 if cut <= mbuf.bytes().len() => {
                mbuf.advance(cut);
                model.drain(..cut);
            }
            6 if !shared => {
                mbuf.trim_to(cut);
                model.truncate(cut);
            }
            7 if mbuf.is_writable() => {
                let byte = bytes.first().copied().unwrap_or(1);
                mbuf.bytes_mut().fill(byte);
                model[..mbuf.bytes().len()].fill(byte);
            }
            8 => {
                if let Some(room) = mbuf.prepend(bytes.len()) {
                    room.copy_from_slice(&bytes);
                    model.splice(..0, bytes);
                }
            }
            9 if !shared => {
                if let Some(rest) = mbuf.detach() {
                    let rest_model = model.split_off(mbuf.bytes().len());
                    self.mbufs.push(Live(rest, rest_model, false));
                }
            }
            10 => return mbuf.free(),
            11 if !self.helds.is_empty() => self.held_step(),
            _ => {}
        }
        self.mbufs.push(Live(mbuf, model, shared));
    }

    fn held_step(&mut self) {
        let idx = self.below(self.helds.len());
        let (held, model) = self.helds.swap_remove(idx);
        match self.below(4) {
            0 => drop(held),
            1 => {
                self.helds.push((held.another(), model.clone()));
                self.helds.push((held, model));
            }
            2 => {
                let len = model.len() / 2;
                if let Some(part) = held.slice(model.len() - len, len) {
                    self.helds.push((part, model[model.len() - len..].to_vec()));
                }
                self.helds.push((held, model));
            }
            _ => match held.into_mbuf() {
                // The mbuf's content when it was dropped; its handle is gone.
                Ok(mbuf) => {
                    let now = flat(mbuf.segments());
                    self.mbufs.push(Live(mbuf, now, true));
                }
                Err(held) => self.helds.push((held, model)),
            },
        }
    }

    fn check(&self) {
        for Live(mbuf, model, _) in &self.mbufs {
            assert_eq!((mbuf.len(), flat(mbuf.segments())), (model.len(), model.clone()));
        }
        for (held, model) in &self.helds {
            assert_eq!((held.len(), flat(held.segments())), (model.len(), model.clone()));
        }
    }
}

#[test]
fn every_handle_shows_its_own_bytes_whatever_is_done_to_the_others() {
    let (seeds, steps) = if cfg!(miri) { (4, 100) } else { (100, 300) };
    for seed in 1..=seeds {
        let mut model = Model { random: seed, pool: Pool::heap(12).unwrap(), mbufs: vec![], helds: vec![] };
        for _ in 0..steps {
            model.step();
            model.check();
        }
        let Model { pool, mbufs, helds, .. } = model;
        mbufs.into_iter().for_each(|Live(mbuf, ..)| mbuf.free());
        drop(helds);
        assert_eq!((pool.in_use(), pool.drops_without_reason()), (0, 0), "seed {seed}");
    }
}
