//! Facts of an ELF image. The file is untrusted: any content gives an error or a fact, never a
//! crash.

use core::fmt;
use std::fs::File;

use object::elf::{DT_NEEDED, EM_386, EM_AARCH64, EM_ARM, EM_RISCV, EM_X86_64, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};

/// The facts of an image.
#[derive(Debug)]
pub(super) struct Elf {
    pub(super) machine: Machine,
    /// The loader; `None` of a static image.
    pub(super) interpreter: Option<String>,
    /// Whether Go's linker made it.
    pub(super) is_go: bool,
    /// The libraries that it needs (`DT_NEEDED`).
    needed: Vec<String>,
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
        let data = ReadCache::new(file);
        match FileKind::parse(&data)? {
            FileKind::Elf32 => facts(FileHeader32::<Endianness>::parse(&data)?, &data, 32),
            _ => facts(FileHeader64::<Endianness>::parse(&data)?, &data, 64),
        }
    }

    /// The library by which it uses io_uring, if any.
    pub(super) fn io_uring(&self) -> Option<&str> {
        self.needed.iter().map(String::as_str).find(|name| name.starts_with("liburing"))
    }
}

fn facts<'data, E: FileHeader, R: ReadRef<'data>>(header: &'data E, data: R, bits: u8) -> object::Result<Elf> {
    let endian = header.endian()?;
    let mut interpreter = None;
    for segment in header.program_headers(endian, data)? {
        if let Some(path) = segment.interpreter(endian, data)? {
            interpreter = Some(String::from_utf8_lossy(path).into_owned());
        }
    }
    // An image may lack section headers, which the kernel does not need; then there are no further
    // facts.
    let sections = header.sections(endian, data)?;
    let mut is_go = false;
    for section in sections.iter() {
        let name = sections.section_name(endian, section)?;
        is_go |= matches!(name, b".go.buildinfo" | b".note.go.buildid" | b".gopclntab");
    }
    let mut needed = Vec::new();
    if let Some((entries, strings)) = sections.dynamic(endian, data)? {
        let strings = sections.strings(endian, data, strings)?;
        for entry in entries.iter().filter(|entry| entry.d_tag(endian) == DT_NEEDED) {
            needed.push(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned());
        }
    }
    Ok(Elf { machine: Machine { number: header.e_machine(endian), bits }, interpreter, is_go, needed })
}
