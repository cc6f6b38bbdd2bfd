//! Modules, kernels and their launches.

use std::sync::Arc;

use super::code::{CuResult, Failure};
use super::objects::{Function, StreamWork};
use super::state::Driver;
use crate::kernel::load;
use crate::run::Launch;

/// Bytes of shared memory that a launch may use by default.
pub const SHARED: usize = 48 * 1024;
/// Largest shared memory of a launch, in bytes, after opting in.
pub const SHARED_OPT_IN: usize = 227 * 1024;
/// Largest number of threads of a block.
pub const THREADS: u32 = 1024;

impl Driver {
    /// Loads PTX text; returns the module's handle.
    pub fn load_module(&mut self, text: &str, thread: u64) -> Result<u64, Failure> {
        self.outside_capture("loading a module", thread)?;
        let loaded = load(text, &mut self.memory);
        let loaded = loaded.map_err(|error| Failure::new(CuResult::InvalidPtx, error.to_string()))?;
        let handle = self.handle();
        self.modules.insert(handle, loaded);
        Ok(handle)
    }

    /// Unloads a module; its kernels' handles become invalid.
    pub fn unload_module(&mut self, handle: u64) -> Result<(), Failure> {
        let missing = || Failure::new(CuResult::InvalidHandle, format!("there is no module {handle:#x}"));
        let module = self.modules.remove(&handle).ok_or_else(missing)?;
        self.functions
            .retain(|_, function| !module.kernels.values().any(|kernel| Arc::ptr_eq(kernel, &function.kernel)));
        Ok(())
    }

    /// Returns a kernel's handle.
    pub fn function(&mut self, module: u64, name: &str) -> Result<u64, Failure> {
        let found = self.modules.get(&module).and_then(|module| module.kernels.get(name)).cloned();
        let missing = || Failure::new(CuResult::NotFound, format!("the module has no kernel `{name}`"));
        let kernel = found.ok_or_else(missing)?;
        let handle = self.handle();
        let most_dynamic = SHARED.saturating_sub(kernel.static_shared);
        self.functions.insert(handle, Function { kernel, most_dynamic });
        Ok(handle)
    }

    /// Returns a variable's address and size.
    pub fn global(&self, module: u64, name: &str) -> Result<(u64, usize), Failure> {
        let found = self.modules.get(&module).and_then(|module| module.globals.get(name)).copied();
        found.ok_or_else(|| Failure::new(CuResult::NotFound, format!("the module has no variable `{name}`")))
    }

    fn of_handle(&mut self, handle: u64) -> Result<&mut Function, Failure> {
        let missing = || Failure::new(CuResult::InvalidHandle, format!("there is no kernel {handle:#x}"));
        self.functions.get_mut(&handle).ok_or_else(missing)
    }

    /// Returns the bytes of each parameter of a kernel.
    pub fn param_sizes(&mut self, handle: u64) -> Result<Vec<usize>, Failure> {
        Ok(self.of_handle(handle)?.kernel.params.iter().map(|(_, size)| *size).collect())
    }

    /// Implements `cuFuncGetAttribute` for the attributes that are covered.
    pub fn function_attribute(&mut self, handle: u64, attribute: u32) -> Result<i32, Failure> {
        let function = self.of_handle(handle)?;
        let value = match attribute {
            0 => THREADS as usize,
            1 => function.kernel.static_shared,
            2 => 0,
            3 => function.kernel.local,
            5 => 80,
            6 => 90,
            8 => function.most_dynamic,
            _ => return Err(Failure::new(CuResult::NotSupported, format!("the attribute {attribute} is not covered"))),
        };
        Ok(value as i32)
    }

    /// Implements `cuFuncSetAttribute`: sets the dynamic shared memory that launches may request.
    pub fn set_function_attribute(&mut self, handle: u64, attribute: u32, value: i32) -> Result<(), Failure> {
        let function = self.of_handle(handle)?;
        if attribute != 8 {
            return Err(Failure::new(CuResult::NotSupported, format!("the attribute {attribute} is not covered")));
        }
        let wanted =
            usize::try_from(value).ok().filter(|wanted| wanted + function.kernel.static_shared <= SHARED_OPT_IN);
        let too_much = || Failure::new(CuResult::InvalidValue, format!("{value} bytes of dynamic shared memory"));
        function.most_dynamic = wanted.ok_or_else(too_much)?;
        Ok(())
    }

    /// Enqueues a launch on a stream. `values` are the bytes of each parameter.
    pub fn launch(
        &mut self,
        handle: u64,
        grid: [u32; 3],
        block: [u32; 3],
        shared: usize,
        stream: u64,
        values: &[Vec<u8>],
    ) -> Result<(), Failure> {
        let Function { kernel, most_dynamic } = self.of_handle(handle)?;
        let threads = block.iter().try_fold(1u32, |product, side| product.checked_mul(*side));
        let wrong = |text: String| Err(Failure::new(CuResult::InvalidValue, format!("{}: {text}", kernel.name)));
        if grid.contains(&0) || grid[1] > 65_535 || grid[2] > 65_535 || grid[0] > i32::MAX as u32 {
            return wrong(format!("a grid of {grid:?}"));
        }
        if block[2] > 64 || threads.is_none_or(|threads| threads == 0 || threads > THREADS) {
            return wrong(format!("a block of {block:?}"));
        }
        if shared > *most_dynamic {
            return wrong(format!("{shared} bytes of dynamic shared memory, and {most_dynamic} are allowed"));
        }
        let mut params = vec![0; kernel.param_bytes];
        for ((at, size), value) in kernel.params.iter().zip(values) {
            params[*at..at + size].copy_from_slice(value);
        }
        let kernel = kernel.clone();
        self.submit(stream, StreamWork::Launch(Launch { kernel, grid, block, shared, params }))
    }
}
