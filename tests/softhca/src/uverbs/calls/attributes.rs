//! Calls of `ioctl`: a header and a list of attributes, each a small value, a pointer, a handle or
//! a descriptor; mlx5.md 3.2.
//!
//! A method declares the attributes that it knows. Arriving attributes are checked against the
//! declaration before the method runs, and its outputs are written to the client's addresses.

use super::memory::{self, ResponseBuffer, nothing_after};
use crate::hca::{Dma, Errno};
use crate::uverbs::abi::verbs::IoctlHdr;
use crate::uverbs::abi::{Layout, read_at};
use crate::uverbs::objects::{Objects, handles};
use crate::uverbs::{PAGE_LEN, errno, refuse};

/// Bytes of an attribute: id u16, len u16, flags u16, reserved u16, data u64.
const ATTRIBUTE_LEN: usize = 16;

/// RDMA_DRIVER_MLX5.
const DRIVER: u32 = 1;

/// The client wants to be refused where the attribute is not known.
const MANDATORY: u16 = 1;

/// Set where an output was written.
const VALID_OUTPUT: u16 = 2;

/// The driver's request and response of methods that have them.
pub(in crate::uverbs) const DRIVER_IN: u16 = 0x1000;
pub(in crate::uverbs) const DRIVER_OUT: u16 = 0x1001;

/// One attribute as it arrived.
#[derive(Clone, Copy, Debug)]
struct Attribute {
    id: u16,
    len: usize,
    flags: u16,
    reserved: u16,
    data: u64,
    /// Where it stands in the client's memory.
    address: u64,
}

/// A call as it arrived.
#[derive(Clone, Debug)]
pub(in crate::uverbs) struct Request {
    pub(in crate::uverbs) object: u16,
    pub(in crate::uverbs) method: u16,
    attributes: Vec<Attribute>,
}

impl Request {
    /// Reads header and attributes.
    pub(in crate::uverbs) fn read(dma: &dyn Dma, argument: u64) -> Result<Self, Errno> {
        let header = IoctlHdr::read(&memory::read(dma, argument, IoctlHdr::LEN)?);
        let len = usize::from(header.num_attrs) * ATTRIBUTE_LEN;
        // A call is never longer than a page.
        if u64::from(header.length) > PAGE_LEN || usize::from(header.length) != IoctlHdr::LEN + len {
            return refuse(libc::EINVAL);
        }
        if header.reserved1 != 0 || header.reserved2 != 0 {
            return refuse(libc::EPROTONOSUPPORT);
        }
        if header.driver_id != DRIVER {
            return refuse(libc::EINVAL);
        }
        let begin = argument.saturating_add(IoctlHdr::LEN as u64);
        ResponseBuffer { address: begin, len }.probe(dma)?;
        let bytes = memory::read(dma, begin, len)?;
        let attributes = bytes.chunks_exact(ATTRIBUTE_LEN).enumerate().map(|(idx, bytes)| Attribute {
            id: read_at(bytes, 0),
            len: read_at::<u16>(bytes, 2).into(),
            flags: read_at(bytes, 4),
            reserved: read_at(bytes, 6),
            data: read_at(bytes, 8),
            address: begin + (idx * ATTRIBUTE_LEN) as u64,
        });
        Ok(Self { object: header.object_id, method: header.method_id, attributes: attributes.collect() })
    }

    /// Checks the attributes against the method's declaration.
    pub(in crate::uverbs) fn bundle(
        &self,
        dma: &dyn Dma,
        declared: &[Spec],
        objects: &Objects,
    ) -> Result<Bundle, Errno> {
        let mut values = Vec::new();
        for attribute in &self.attributes {
            let Some(spec) = declared.iter().find(|spec| spec.id == attribute.id) else {
                if attribute.flags & MANDATORY != 0 {
                    return refuse(libc::EPROTONOSUPPORT);
                }
                continue;
            };
            if values.iter().any(|(known, ..): &(Attribute, _)| known.id == spec.id) {
                return refuse(libc::EINVAL);
            }
            values.push((*attribute, attribute.check(dma, spec.kind, objects)?));
        }
        if declared.iter().any(|spec| spec.mandatory && !values.iter().any(|(known, _)| known.id == spec.id)) {
            return refuse(libc::EINVAL);
        }
        Ok(Bundle { values })
    }
}

impl Attribute {
    fn check(&self, dma: &dyn Dma, kind: Kind, objects: &Objects) -> Result<Value, Errno> {
        if self.reserved != 0 {
            return refuse(libc::EINVAL);
        }
        match kind {
            Kind::In(least, known) => {
                if self.len < least {
                    return refuse(libc::EINVAL);
                }
                let bytes = self.input(dma)?;
                nothing_after(&bytes, known)?;
                Ok(Value::In(bytes))
            }
            Kind::Out(least) => {
                let place = ResponseBuffer { address: self.data, len: self.len };
                if self.len < least {
                    return refuse(libc::EINVAL);
                }
                place.probe(dma)?;
                Ok(Value::Out(place))
            }
            _ if self.len != 0 => refuse(libc::EINVAL),
            Kind::Handle(kind) => {
                let handle = u32::try_from(self.data).map_err(|_| errno(libc::ENOENT))?;
                objects.get(kind, handle).map(|_| Value::Handle(handle)).ok_or(errno(libc::ENOENT))
            }
            Kind::Descriptor => i32::try_from(self.data).map(Value::Descriptor).map_err(|_| errno(libc::EBADF)),
            Kind::NewHandle | Kind::NewDescriptor => Ok(Value::New),
        }
    }

    /// Up to eight bytes stand in the attribute itself.
    fn input(&self, dma: &dyn Dma) -> Result<Vec<u8>, Errno> {
        match self.len {
            len @ 0..=8 => Ok(self.data.to_ne_bytes()[..len].to_vec()),
            len => memory::read(dma, self.data, len),
        }
    }
}

/// A method's declaration of an attribute.
#[derive(Clone, Copy, Debug)]
pub(in crate::uverbs) struct Spec {
    pub(in crate::uverbs) id: u16,
    kind: Kind,
    mandatory: bool,
}

/// The kinds of attributes.
#[derive(Clone, Copy, Debug)]
pub(in crate::uverbs) enum Kind {
    /// Bytes of the client: at least the first number; those after the second number must be zeros.
    In(usize, usize),
    /// Room for a response of at least this many bytes.
    Out(usize),
    /// An object that exists.
    Handle(handles::Kind),
    /// Gets the handle of an object that is made.
    NewHandle,
    /// A descriptor of the client.
    Descriptor,
    /// Gets a descriptor that is made.
    NewDescriptor,
}

impl Spec {
    /// An attribute that must be there.
    pub(in crate::uverbs) const fn wanted(id: u16, kind: Kind) -> Self {
        Self { id, kind, mandatory: true }
    }

    /// One that may be there.
    pub(in crate::uverbs) const fn optional(id: u16, kind: Kind) -> Self {
        Self { id, kind, mandatory: false }
    }
}

#[derive(Clone, Debug)]
enum Value {
    In(Vec<u8>),
    Out(ResponseBuffer),
    Handle(u32),
    Descriptor(i32),
    New,
}

/// The attributes of a call that fit the method.
#[derive(Clone, Debug)]
pub(in crate::uverbs) struct Bundle {
    values: Vec<(Attribute, Value)>,
}

impl Bundle {
    /// The bytes of the input; empty where it is missing.
    pub(in crate::uverbs) fn bytes(&self, id: u16) -> &[u8] {
        match self.value(id) {
            Some(Value::In(bytes)) => bytes,
            _ => &[],
        }
    }

    /// The input as `T`; zeros where it is missing.
    pub(in crate::uverbs) fn input<T: Layout>(&self, id: u16) -> T {
        T::read(self.bytes(id))
    }

    /// Flags of four or eight bytes, none but the `known` ones.
    pub(in crate::uverbs) fn flags(&self, id: u16, known: u32) -> Result<u32, Errno> {
        let flags = match self.bytes(id) {
            bytes @ ([] | [_, _, _, _]) => u32::read(bytes).into(),
            bytes if bytes.len() == 8 => u64::read(bytes),
            _ => return refuse(libc::EINVAL),
        };
        if flags & !u64::from(known) != 0 { refuse(libc::EINVAL) } else { Ok(flags as u32) }
    }

    /// Bytes of room for an output.
    pub(in crate::uverbs) fn room(&self, id: u16) -> usize {
        match self.value(id) {
            Some(Value::Out(place)) => place.len,
            _ => 0,
        }
    }

    /// The handle, where it was given.
    pub(in crate::uverbs) fn handle(&self, id: u16) -> Option<u32> {
        match self.value(id) {
            Some(Value::Handle(handle)) => Some(*handle),
            _ => None,
        }
    }

    /// The handle of an attribute that must be there.
    pub(in crate::uverbs) fn wanted_handle(&self, id: u16) -> Result<u32, Errno> {
        self.handle(id).ok_or(errno(libc::EINVAL))
    }

    /// The descriptor, where it was given.
    pub(in crate::uverbs) fn descriptor(&self, id: u16) -> Option<i32> {
        match self.value(id) {
            Some(Value::Descriptor(descriptor)) => Some(*descriptor),
            _ => None,
        }
    }

    fn value(&self, id: u16) -> Option<&Value> {
        self.values.iter().find(|(attribute, _)| attribute.id == id).map(|(_, value)| value)
    }

    /// Writes the outputs of a method that ran.
    pub(in crate::uverbs) fn answer(&self, dma: &dyn Dma, outputs: &Outputs) -> Result<(), Errno> {
        for (id, output) in &outputs.0 {
            let Some((attribute, value)) = self.values.iter().find(|(attribute, _)| attribute.id == *id) else {
                continue;
            };
            match (output, value) {
                (Output::Bytes(bytes), Value::Out(place)) => place.put_and_clear(dma, bytes)?,
                (Output::Number(number), Value::New) => {
                    ResponseBuffer { address: attribute.address + 8, len: 8 }.put(dma, &number.to_ne_bytes())?;
                }
                _ => continue,
            }
            let flags = attribute.flags | VALID_OUTPUT;
            ResponseBuffer { address: attribute.address + 4, len: 2 }.put(dma, &flags.to_ne_bytes())?;
        }
        Ok(())
    }
}

/// The outputs of a method. Outputs that the client did not request are left out.
#[derive(Clone, Debug, Default)]
pub(in crate::uverbs) struct Outputs(Vec<(u16, Output)>);

#[derive(Clone, Debug)]
enum Output {
    Bytes(Vec<u8>),
    Number(i64),
}

impl Outputs {
    /// No outputs yet.
    pub(in crate::uverbs) fn new() -> Self {
        Self::default()
    }

    /// A value.
    pub(in crate::uverbs) fn value(self, id: u16, value: &impl Layout) -> Self {
        self.bytes(id, value.bytes())
    }

    /// Bytes.
    pub(in crate::uverbs) fn bytes(mut self, id: u16, bytes: Vec<u8>) -> Self {
        self.0.push((id, Output::Bytes(bytes)));
        self
    }

    /// The handle of an object that was made.
    pub(in crate::uverbs) fn handle(mut self, id: u16, handle: u32) -> Self {
        self.0.push((id, Output::Number(handle.into())));
        self
    }

    /// A descriptor that was made.
    pub(in crate::uverbs) fn descriptor(mut self, id: u16, descriptor: i32) -> Self {
        self.0.push((id, Output::Number(descriptor.into())));
        self
    }
}
