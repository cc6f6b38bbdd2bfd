//! Model families: their claims on checkpoints, and their loaders.

use repartee_kernels::cpu::Cpu;

use super::load_error::LoadError;
use super::unserved;
use crate::checkpoint::{CONFIG, Checkpoint, CheckpointError};
use crate::config::EngineConfig;
use crate::models::parts::pipeline::Assembly;

/// Variant of a family that a checkpoint is; each family has its own names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilyVariant(pub &'static str);

/// Function that loads the parts of a claimed checkpoint onto a device.
pub type AssembleFn<D> = fn(D, &Checkpoint, FamilyVariant, &EngineConfig) -> Result<Assembly<D>, LoadError>;

/// A model family: its claim on checkpoints and its loaders.
pub struct Family {
    /// Name for messages: the `architectures` entry of its config.json, or the published name.
    pub name: &'static str,
    /// Returns the variant if the checkpoint is of this family: by config.json's `architectures`, else by the files'
    /// contents.
    pub claims: fn(&Checkpoint) -> Option<FamilyVariant>,
    /// Loads the parts of a claimed checkpoint on the CPU.
    pub assemble_cpu: AssembleFn<Cpu>,
    /// Loads the parts of a claimed checkpoint on a CUDA device.
    #[cfg(feature = "cuda")]
    pub assemble_cuda: AssembleFn<repartee_kernels::cuda::Cuda>,
}

/// Claims a checkpoint by the first of config.json's `architectures`.
pub fn claims_named(checkpoint: &Checkpoint, names: &[&str], variant: FamilyVariant) -> Option<FamilyVariant> {
    let first = checkpoint.architectures().into_iter().next()?;
    names.contains(&&first[..]).then_some(variant)
}

/// Finds the one family that claims a checkpoint.
pub fn claimed<'a>(
    families: &'a [Family],
    checkpoint: &Checkpoint,
) -> Result<(&'a Family, FamilyVariant), CheckpointError> {
    let claims = families.iter().filter_map(|family| Some((family, (family.claims)(checkpoint)?)));
    match &claims.collect::<Vec<_>>()[..] {
        [claim] => Ok(*claim),
        [] => {
            let known = families.iter().map(|family| family.name).collect::<Vec<_>>().join(", ");
            if let Some(family) = unserved::name(checkpoint) {
                return Err(CheckpointError::NotServedYet { checkpoint: checkpoint.name().to_owned(), family, known });
            }
            // Without config.json this is an error about the missing file.
            let found = checkpoint.architecture()?;
            Err(CheckpointError::UnknownArchitecture { file: checkpoint.label(CONFIG), known, found })
        }
        several => {
            let families = several.iter().map(|(family, _)| family.name).collect::<Vec<_>>().join(", ");
            Err(CheckpointError::Ambiguous { folder: checkpoint.name().to_owned(), families })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Source;
    use crate::model::TopologyError;

    fn family(name: &'static str, claims: fn(&Checkpoint) -> Option<FamilyVariant>) -> Family {
        Family {
            name,
            claims,
            assemble_cpu: |_, _, _, _| Err(LoadError::Topology(TopologyError::Empty)),
            #[cfg(feature = "cuda")]
            assemble_cuda: |_, _, _, _| Err(LoadError::Topology(TopologyError::Empty)),
        }
    }

    fn open(files: &'static [(&'static str, &'static [u8])]) -> Checkpoint {
        Checkpoint::open(Source::Embedded { name: "test", files }).unwrap()
    }

    fn by_architecture(checkpoint: &Checkpoint) -> Option<FamilyVariant> {
        checkpoint.architectures().contains(&"One".to_owned()).then_some(FamilyVariant("one"))
    }

    fn by_files(checkpoint: &Checkpoint) -> Option<FamilyVariant> {
        (checkpoint.has_file("flow.safetensors") && checkpoint.has_file("lm.yaml")).then_some(FamilyVariant("two"))
    }

    #[test]
    fn a_family_claims_by_architecture_or_files() {
        let families = [family("One", by_architecture), family("two", by_files)];
        let one = open(&[("config.json", br#"{"architectures": ["One"]}"#)]);
        assert_eq!(claimed(&families, &one).unwrap().1, FamilyVariant("one"));
        let two = open(&[("lm.yaml", b""), ("flow.safetensors", b"")]);
        assert_eq!(claimed(&families, &two).unwrap().1, FamilyVariant("two"), "a family without config.json");
    }

    #[test]
    fn two_claims_are_an_error() {
        let families = [family("One", by_architecture), family("two", by_files)];
        let both =
            open(&[("config.json", br#"{"architectures": ["One"]}"#), ("lm.yaml", b""), ("flow.safetensors", b"")]);
        let error = claimed(&families, &both).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("One, two"), "{error}");
    }

    #[test]
    fn an_unclaimed_checkpoint_names_the_families() {
        let families = [family("One", by_architecture), family("two", by_files)];
        let other = open(&[("config.json", br#"{"architectures": ["Other"]}"#)]);
        let error = claimed(&families, &other).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("`Other`") && error.contains("One, two"), "{error}");
        let nothing = claimed(&families, &open(&[])).map(|_| ()).unwrap_err();
        assert!(matches!(nothing, CheckpointError::FileMissing { .. }), "{nothing}");
    }
}
