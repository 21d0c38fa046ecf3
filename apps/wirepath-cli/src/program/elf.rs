//! Facts of an ELF image. The file is untrusted: any content gives an error or a fact, never a
//! crash, and takes little memory.

use core::fmt;
use core::ops::Range;
use std::fs::File;
use std::os::unix::fs::FileExt;

use object::elf::{DT_NEEDED, EM_386, EM_AARCH64, EM_ARM, EM_RISCV, EM_X86_64, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::{Endianness, FileKind, ReadCache, ReadRef};

/// The longest part of an image that is read as one: the headers of all sections, the list of
/// libraries. The largest programs have some tens of KiB of them; a sparse file claims any length.
const PART_LEN_MAX: u64 = 1 << 20;
/// Bytes of a section that are searched: the constants and names of the largest programs are less.
const SEARCHED_MAX: u64 = 64 << 20;
/// Bytes that are searched at once.
const SEARCHED_AT_ONCE: usize = 64 << 10;
/// What names io_uring in an image without the library among those that it needs: functions of a
/// liburing that is linked into it, and the name by which it opens one (dlopen(3)).
const LINKED: &[u8] = b"\0io_uring_queue_init";
const OPENED: &[u8] = b"liburing.so";

/// The facts of an image.
#[derive(Debug)]
pub(super) struct Elf {
    pub(super) machine: Machine,
    /// The loader; `None` of a static image.
    pub(super) interpreter: Option<String>,
    /// Whether Go's linker made it.
    pub(super) is_go: bool,
    /// By what it uses io_uring, in words.
    io_uring: Option<String>,
}

/// A processor, by the number of ELF, and the size of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    number: object::elf::Machine,
    bits: u8,
}

/// The machine that the library is built for, which is that of this tool.
#[cfg(target_arch = "x86_64")]
pub(super) const OURS: Machine = Machine { number: EM_X86_64, bits: 64 };
/// The machine that the library is built for, which is that of this tool.
#[cfg(target_arch = "aarch64")]
pub(super) const OURS: Machine = Machine { number: EM_AARCH64, bits: 64 };

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, bits } = *self;
        match number {
            EM_X86_64 => write!(f, "x86-64")?,
            EM_AARCH64 => write!(f, "aarch64")?,
            EM_386 => return write!(f, "32-bit x86"),
            EM_ARM => return write!(f, "32-bit ARM"),
            EM_RISCV => write!(f, "RISC-V")?,
            other => write!(f, "processor {} of ELF", other.0)?,
        }
        if bits == 32 { write!(f, " with addresses of 32 bits") } else { Ok(()) }
    }
}

impl Elf {
    pub(super) fn read(file: File) -> object::Result<Self> {
        let again = file.try_clone();
        let cache = ReadCache::new(file);
        let data = Limited(&cache);
        let (mut elf, named_in) = match FileKind::parse(data)? {
            FileKind::Elf32 => facts(FileHeader32::<Endianness>::parse(data)?, data, 32)?,
            _ => facts(FileHeader64::<Endianness>::parse(data)?, data, 64)?,
        };
        if let (None, Ok(file)) = (&elf.io_uring, again) {
            elf.io_uring = named_in.iter().find_map(|named| named.find(&file));
        }
        Ok(elf)
    }

    pub(super) fn io_uring(&self) -> Option<&str> {
        self.io_uring.as_deref()
    }
}

/// The bytes of an image, of which no part is longer than [`PART_LEN_MAX`]. Strings are short
/// already: [`ReadCache`] looks for their end within 4096 bytes.
#[derive(Clone, Copy)]
struct Limited<R>(R);

impl<'data, R: ReadRef<'data>> ReadRef<'data> for Limited<R> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        if size > PART_LEN_MAX { Err(()) } else { self.0.read_bytes_at(offset, size) }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
    }
}

/// A section that may name io_uring.
struct NamedIn {
    what: &'static [u8],
    /// What that says, in words.
    says: &'static str,
    at: u64,
    len: u64,
}

impl NamedIn {
    fn of(name: &[u8], at: u64, len: u64) -> Option<Self> {
        let (what, says) = match name {
            b".strtab" | b".dynstr" => (LINKED, "liburing, which is linked into it"),
            b".rodata" => (OPENED, "liburing.so, whose name is in it"),
            _ => return None,
        };
        Some(Self { what, says, at, len: len.min(SEARCHED_MAX) })
    }

    /// Searches the section, piece by piece.
    fn find(&self, file: &File) -> Option<String> {
        let (mut piece, mut done) = (vec![0; SEARCHED_AT_ONCE], 0);
        while done < self.len {
            let wanted = (self.len - done).min(SEARCHED_AT_ONCE as u64) as usize;
            let read = file.read_at(&mut piece[..wanted], self.at.checked_add(done)?).ok()?;
            if piece[..read].windows(self.what.len()).any(|bytes| bytes == self.what) {
                return Some(self.says.into());
            }
            // A name may begin in this piece and end in the next.
            done += read.checked_sub(self.what.len() - 1).filter(|len| *len > 0)? as u64;
        }
        None
    }
}

/// What the kernel needs must be there; sections it does without, so those that are absent, or were
/// damaged on purpose, give no facts.
fn facts<'data, E: FileHeader, R: ReadRef<'data>>(
    header: &'data E,
    data: R,
    bits: u8,
) -> object::Result<(Elf, Vec<NamedIn>)> {
    let endian = header.endian()?;
    let mut interpreter = None;
    for segment in header.program_headers(endian, data)? {
        if let Some(path) = segment.interpreter(endian, data)? {
            interpreter = Some(String::from_utf8_lossy(path).into_owned());
        }
    }
    let sections = header.sections(endian, data).unwrap_or_default();
    let is_of_go = |name: &[u8]| matches!(name, b".go.buildinfo" | b".note.go.buildid" | b".gopclntab");
    let is_go = sections.iter().any(|section| sections.section_name(endian, section).is_ok_and(is_of_go));
    let io_uring = io_uring(&sections, endian, data).unwrap_or_default();
    let named_in = sections.iter().filter_map(|section| {
        let (at, len) = section.file_range(endian)?;
        NamedIn::of(sections.section_name(endian, section).ok()?, at, len)
    });
    let machine = Machine { number: header.e_machine(endian), bits };
    Ok((Elf { machine, interpreter, is_go, io_uring }, named_in.collect()))
}

/// The first library of io_uring among those that the image needs (`DT_NEEDED`).
fn io_uring<'data, E: FileHeader, R: ReadRef<'data>>(
    sections: &SectionTable<'data, E, R>,
    endian: E::Endian,
    data: R,
) -> object::Result<Option<String>> {
    let Some((entries, strings)) = sections.dynamic(endian, data)? else { return Ok(None) };
    let strings = sections.strings(endian, data, strings)?;
    let names = entries.iter().filter(|entry| entry.d_tag(endian) == DT_NEEDED);
    let mut names = names.filter_map(|entry| entry.string(endian, strings).ok());
    Ok(names.find(|name| name.starts_with(b"liburing")).map(|name| String::from_utf8_lossy(name).into_owned()))
}
