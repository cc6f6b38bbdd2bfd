//! Loaded modules: variables with addresses, and launchable kernels.

use std::collections::HashMap;
use std::sync::Arc;

use crate::decode::{Inst, Symbols, bind};
use crate::memory::DeviceMemory;
use crate::ptx::{KernelEntry, PtxError, Space, Variable, parse};

/// A launchable kernel.
#[derive(Debug)]
pub struct Kernel {
    /// Name of the kernel.
    pub name: String,
    /// Instructions in order.
    pub code: Vec<Inst>,
    /// Number of registers.
    pub registers: usize,
    /// Offset and bytes of each parameter in the parameter space.
    pub params: Vec<(usize, usize)>,
    /// Bytes of the parameter space.
    pub param_bytes: usize,
    /// Bytes of static shared memory; the dynamic one follows.
    pub static_shared: usize,
    /// Bytes of a thread's local memory.
    pub local: usize,
}

/// A loaded module.
#[derive(Debug, Default)]
pub struct LoadedModule {
    /// Kernels by name.
    pub kernels: HashMap<String, Arc<Kernel>>,
    /// Variables in device memory: address and bytes, by name.
    pub globals: HashMap<String, (u64, usize)>,
}

/// Loads a module and allocates its variables.
///
/// # Errors
/// The text is wrong or not covered; the error has the line.
pub fn load(text: &str, memory: &mut DeviceMemory) -> Result<LoadedModule, PtxError> {
    let module = parse(text)?;
    let mut loaded = LoadedModule::default();
    let mut symbols = Symbols::new();
    let mut shared = Vec::new();
    for variable in &module.variables {
        match variable.space {
            Space::Global => {
                let full = || PtxError::new(1, "the device's memory is full");
                let address = memory.alloc(variable.size).ok_or_else(full)?;
                // A variable without a value starts as zeros.
                let mut bytes = variable.init.clone();
                bytes.resize(variable.size, 0);
                memory.write(address, &bytes).map_err(|fault| PtxError::new(1, fault.text))?;
                symbols.insert(variable.name.clone(), (Space::Global, address));
                loaded.globals.insert(variable.name.clone(), (address, variable.size));
            }
            _ => shared.push(variable),
        }
    }
    for entry in &module.entries {
        let kernel = Arc::new(link(entry, &shared, symbols.clone())?);
        loaded.kernels.insert(entry.name.clone(), kernel);
    }
    Ok(loaded)
}

fn link(entry: &KernelEntry, shared_of_module: &[&Variable], mut symbols: Symbols) -> Result<Kernel, PtxError> {
    let (mut shared, mut local) = (0, 0);
    let own = entry.variables.iter();
    // Dynamic shared memory has no size of its own and comes last.
    let (dynamic, fixed): (Vec<&Variable>, Vec<&Variable>) =
        own.chain(shared_of_module.iter().copied()).partition(|variable| variable.size == 0);
    for variable in fixed.into_iter().chain(dynamic) {
        let end = if variable.space == Space::Local { &mut local } else { &mut shared };
        *end = usize::next_multiple_of(*end, variable.align.max(1));
        symbols.insert(variable.name.clone(), (variable.space, *end as u64));
        *end += variable.size;
    }
    let code = entry.body.iter().map(|one| bind(one, entry, &symbols)).collect::<Result<_, _>>()?;
    Ok(Kernel {
        name: entry.name.clone(),
        code,
        registers: entry.registers as usize,
        params: entry.params.iter().map(|param| (param.offset, param.size)).collect(),
        param_bytes: entry.param_bytes(),
        static_shared: shared,
        local,
    })
}
