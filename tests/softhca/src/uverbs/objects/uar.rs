//! Pages of doorbell registers (UAR pages; mlx5.md 2.7, 3.5, 3.7), and the pages that an `mmap`
//! maps.
//!
//! A session has them in two ways. In the older protocol some come with the context, and more when
//! the client maps them; queues then name a register of theirs, or are given one. In the newer one
//! each is an object, and queues name the page.

use std::collections::BTreeMap;

use super::handles::{Kind, Object};
use crate::hca::{Errno, Hca};
use crate::uverbs::calls::{Bundle, Outputs};
use crate::uverbs::context::Context;
use crate::uverbs::{Kernel, Mapping, PAGE_LEN, errno, refuse};

/// Doorbell registers of a page that a queue may use.
pub(in crate::uverbs) const REGISTERS_A_PAGE: u32 = 2;

/// Registers of a page as the client counts them; a page has two more, which no client uses.
const REGISTERS_A_PAGE_COUNTED: u32 = 4;

/// Doorbell pages that a client may map one at a time after it has opened the device, by the older
/// protocol: 512 registers.
const LATER_PAGES: u32 = 256;

/// Commands in the offset of an `mmap`; mlx5.md 3.7.
mod command {
    pub(super) const REGULAR: u64 = 0;
    pub(super) const WRITE_COMBINING: u64 = 2;
    pub(super) const NOT_CACHED: u64 = 3;
    pub(super) const CORE_CLOCK: u64 = 5;
    pub(super) const LATER: u64 = 6;
    pub(super) const CLOCK_INFO: u64 = 7;
}

/// Offsets of pages that are objects begin here, in pages: behind all commands.
const OBJECTS: u64 = 9 << 8;

/// Pages of a NIC: their offsets must not run into those of commands with a large index.
const PAGES_MAX: u32 = 0xe000;

/// The pages of a context, objects aside.
#[derive(Debug, Default)]
pub(in crate::uverbs) struct Uars {
    /// The pages that came with it.
    first: Vec<u32>,
    /// The pages that were mapped later, by their index.
    later: BTreeMap<u32, u32>,
    /// Queues on each register of the first pages.
    queues: Vec<u32>,
}

/// A register that a queue was given, by its place among those of the first pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::uverbs) struct Register(u32);

impl Register {
    /// Its number as the client counts.
    pub(crate) fn number(self) -> u32 {
        self.0 / REGISTERS_A_PAGE * REGISTERS_A_PAGE_COUNTED + self.0 % REGISTERS_A_PAGE
    }
}

impl Uars {
    /// `pages` pages that come with a context.
    pub(crate) fn new(pages: u32, hca: &mut Hca) -> Result<Self, Errno> {
        let mut uars = Self::default();
        for _ in 0..pages {
            match allocate(hca) {
                Ok(index) => uars.first.push(index),
                Err(refused) => {
                    uars.free(hca);
                    return Err(refused);
                }
            }
        }
        uars.queues = vec![0; uars.first.len() * REGISTERS_A_PAGE as usize];
        Ok(uars)
    }

    /// Gives all pages back.
    pub(crate) fn free(&mut self, hca: &mut Hca) {
        for index in self.first.drain(..).chain(std::mem::take(&mut self.later).into_values()) {
            hca.free_uar(index);
        }
    }

    /// Assigns a queue a dedicated register while there is one, then the first, which clients share
    /// with a lock. `None` where the context has no pages.
    pub(crate) fn take(&mut self) -> Option<(Register, u32)> {
        let free = (1..self.queues.len()).find(|place| self.queues[*place] == 0).unwrap_or(0);
        *self.queues.get_mut(free)? += 1;
        let page = self.first.get(free / REGISTERS_A_PAGE as usize)?;
        Some((Register(free as u32), *page))
    }

    /// The queue went.
    pub(crate) fn release(&mut self, register: Register) {
        if let Some(queues) = self.queues.get_mut(register.0 as usize) {
            *queues = queues.saturating_sub(1);
        }
    }

    /// The page of a register that the client chose among those that it mapped later.
    pub(crate) fn later(&self, register: u32) -> Result<u32, Errno> {
        self.later.get(&(register / REGISTERS_A_PAGE)).copied().ok_or(errno(libc::EINVAL))
    }
}

fn allocate(hca: &mut Hca) -> Result<u32, Errno> {
    let index = hca.alloc_uar();
    if index >= hca.config().uars_max.min(PAGES_MAX) {
        hca.free_uar(index);
        return refuse(libc::ENOSPC);
    }
    Ok(index)
}

impl Context {
    /// Whether a page is this session's.
    pub(crate) fn owns_uar(&self, index: u32) -> bool {
        self.uars.first.contains(&index)
            || self.uars.later.values().any(|page| *page == index)
            || self.objects.iter().any(|(_, object)| object.kind == Kind::Uar && object.nic == index)
    }

    /// The page that `mmap` maps at `offset`.
    pub(crate) fn mmap(&mut self, offset: u64, len: usize, writable: bool, hca: &mut Hca) -> Result<Mapping, Errno> {
        if !offset.is_multiple_of(PAGE_LEN) || len as u64 != PAGE_LEN {
            return refuse(libc::EINVAL);
        }
        let page = offset / PAGE_LEN;
        if (OBJECTS..OBJECTS + u64::from(PAGES_MAX)).contains(&page) {
            let index = (page - OBJECTS) as u32;
            let is_object = |object: &Object| object.kind == Kind::Uar && object.nic == index;
            let found = self.objects.iter().any(|(_, object)| is_object(object));
            return if found { Ok(Mapping::Uar(index)) } else { refuse(libc::EINVAL) };
        }
        let (command, index) = (page >> 8 & 0xff, page & 0xff | page >> 16 << 8);
        let index = u32::try_from(index).map_err(|_| errno(libc::EINVAL))?;
        match command {
            command::REGULAR | command::WRITE_COMBINING | command::NOT_CACHED => {
                self.uars.first.get(index as usize).copied().map(Mapping::Uar).ok_or(errno(libc::EINVAL))
            }
            command::LATER => self.map_later(index, hca).map(Mapping::Uar),
            command::CORE_CLOCK | command::CLOCK_INFO if writable => refuse(libc::EPERM),
            command::CORE_CLOCK => Ok(Mapping::CoreClock),
            command::CLOCK_INFO if index == 0 => Ok(Mapping::ClockInfo),
            _ => refuse(libc::EINVAL),
        }
    }

    fn map_later(&mut self, place: u32, hca: &mut Hca) -> Result<u32, Errno> {
        if self.uars.first.is_empty() || place >= LATER_PAGES || self.uars.later.contains_key(&place) {
            return refuse(libc::EINVAL);
        }
        let index = allocate(hca)?;
        self.uars.later.insert(place, index);
        Ok(index)
    }
}

/// Attributes of the method that makes a page: `mlx5_ib_uar_alloc_attrs`.
pub(in crate::uverbs) mod alloc {
    pub(in crate::uverbs) const HANDLE: u16 = 0x1000;
    pub(in crate::uverbs) const TYPE: u16 = 0x1001;
    pub(in crate::uverbs) const MMAP_OFFSET: u16 = 0x1002;
    pub(in crate::uverbs) const MMAP_LENGTH: u16 = 0x1003;
    pub(in crate::uverbs) const PAGE_ID: u16 = 0x1004;
}

/// Types of pages: for BlueFlame, and without caching. Memory is the same for both.
const TYPES: u64 = 2;

/// Makes a page that is an object.
pub(crate) fn alloc_uar_method(
    context: &mut Context,
    kernel: &mut Kernel<'_>,
    call: &Bundle,
) -> Result<Outputs, Errno> {
    if call.input::<u64>(alloc::TYPE) >= TYPES {
        return refuse(libc::EOPNOTSUPP);
    }
    context.objects.room()?;
    let index = allocate(kernel.hca)?;
    let handle = context.objects.add(Object::new(Kind::Uar, index, []));
    Ok(Outputs::new()
        .handle(alloc::HANDLE, handle)
        .value(alloc::MMAP_OFFSET, &((OBJECTS + u64::from(index)) * PAGE_LEN))
        .value(alloc::MMAP_LENGTH, &(PAGE_LEN as u32))
        .value(alloc::PAGE_ID, &index))
}
