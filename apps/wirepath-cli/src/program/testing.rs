//! Small ELF images that never run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use object::elf;
use tempfile::TempDir;

/// An invented ELF image.
pub(crate) struct ElfFile {
    pub(crate) machine: elf::Machine,
    pub(crate) interpreter: Option<&'static str>,
    /// A section with that name, and its bytes.
    pub(crate) section: &'static str,
    pub(crate) content: Vec<u8>,
    pub(crate) needed: Option<&'static str>,
}

impl Default for ElfFile {
    fn default() -> Self {
        let machine = if cfg!(target_arch = "x86_64") { elf::EM_X86_64 } else { elf::EM_AARCH64 };
        Self {
            machine,
            interpreter: Some("/lib64/ld-linux-x86-64.so.2"),
            section: ".text",
            content: vec![0; 8],
            needed: None,
        }
    }
}

/// Bytes of the header of an image, of a segment and of a section, for addresses of 64 bits.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const SECTION: usize = 64;

impl ElfFile {
    /// Header, one segment, strings, the dynamic entries, then four sections: none, names, strings,
    /// dynamic, and one of the name that was asked for.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let names = format!("\0.shstrtab\0.dynstr\0.dynamic\0{}\0", self.section);
        let name_of = |name: &str| names.find(&format!("\0{name}\0")).unwrap() as u32 + 1;
        let strings = format!("\0{}\0", self.needed.unwrap_or(""));
        let interpreter = format!("{}\0", self.interpreter.unwrap_or(""));
        let mut bytes = vec![0; HEADER + SEGMENT];
        let mut append = |part: &[u8]| {
            let at = bytes.len() as u64;
            bytes.extend_from_slice(part);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            (at, part.len() as u64)
        };
        let interpreter = append(interpreter.as_bytes());
        let (names_at, strings_at) = (append(names.as_bytes()), append(strings.as_bytes()));
        let needed: [u64; 2] = if self.needed.is_some() { [1, 1] } else { [0, 0] };
        let entries: Vec<u8> = needed.iter().chain(&[0, 0]).flat_map(|word| word.to_le_bytes()).collect();
        let dynamic_at = append(&entries);
        let content_at = append(&self.content);
        let mut sections = Vec::new();
        // Number of the name, type, where and how long, the section that it refers to, entry size.
        let mut section = |name: u32, kind: u32, (at, len): (u64, u64), link: u32, entry: u64| {
            sections.extend_from_slice(&name.to_le_bytes());
            sections.extend_from_slice(&kind.to_le_bytes());
            for word in [0, 0, at, len] {
                sections.extend_from_slice(&word.to_le_bytes());
            }
            sections.extend_from_slice(&link.to_le_bytes());
            sections.extend_from_slice(&0u32.to_le_bytes());
            for word in [8, entry] {
                sections.extend_from_slice(&word.to_le_bytes());
            }
        };
        section(0, 0, (0, 0), 0, 0);
        section(name_of(".shstrtab"), elf::SHT_STRTAB.0, names_at, 0, 0);
        section(name_of(".dynstr"), elf::SHT_STRTAB.0, strings_at, 0, 0);
        section(name_of(".dynamic"), elf::SHT_DYNAMIC.0, dynamic_at, 2, 16);
        section(name_of(self.section), elf::SHT_PROGBITS.0, content_at, 0, 0);
        let (sections_at, sections_len) = append(&sections);

        bytes[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        let mut put =
            |at: usize, value: u64, len: usize| bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        put(16, 2, 2); // an executable
        put(18, self.machine.0.into(), 2);
        put(20, 1, 4);
        put(32, HEADER as u64, 8);
        put(40, sections_at, 8);
        for (at, value) in
            [(52, HEADER), (54, SEGMENT), (56, 1), (58, SECTION), (60, sections_len as usize / SECTION), (62, 1)]
        {
            put(at, value as u64, 2);
        }
        put(HEADER, if self.interpreter.is_some() { elf::PT_INTERP.0 } else { elf::PT_LOAD.0 }.into(), 4);
        put(HEADER + 8, interpreter.0, 8);
        put(HEADER + 32, interpreter.1, 8);
        bytes
    }
}

/// An executable file.
pub(crate) fn write_program(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}
