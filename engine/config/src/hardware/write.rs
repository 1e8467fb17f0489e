//! Writes a profile in the form in which people keep it: one line for each number.

use super::{AtThreads, HardwareProfile, Sourced};
use std::fmt::Display;

impl HardwareProfile {
    /// The profile as TOML, which [`HardwareProfile::from_toml`] reads back as the same.
    pub fn to_toml(&self) -> String {
        let mut text = format!("name = {}\ndescription = {}\n", quote(&self.name), quote(&self.description));
        if let Some(gpu) = &self.gpu {
            text += "\n[gpu]\n";
            text += &line("vram_bytes", &gpu.vram_bytes);
            text += &line("vram_read_gb_s", &gpu.vram_read_gb_s);
            gpu.vram_peak_gb_s.iter().for_each(|n| text += &line("vram_peak_gb_s", n));
            gpu.tensor_tflop_s.iter().for_each(|n| text += &line("tensor_tflop_s", n));
            text += &line("launch_us", &gpu.launch_us);
            text += &line("sync_us", &gpu.sync_us);
            text += &line("graph_node_us", &gpu.graph_node_us);
            text += &line("doorbell_us", &gpu.doorbell_us);
        }
        if let Some(link) = &self.link {
            text += "\n[link]\n";
            text += &line("h2d_large_gb_s", &link.h2d_large_gb_s);
            text += &line("h2d_expert_gb_s", &link.h2d_expert_gb_s);
        }
        let cpu = &self.cpu;
        text += "\n[cpu]\n";
        text += &line("cores", &cpu.cores);
        text += &line("threads", &cpu.threads);
        text += &line("layer_overhead_us", &cpu.layer_overhead_us);
        cpu.slowest_thread_share.iter().for_each(|n| text += &line("slowest_thread_share", n));
        text += &list("read_gb_s", &cpu.read_gb_s);
        if !cpu.shared_gb_s.is_empty() {
            text += &list("shared_gb_s", &cpu.shared_gb_s);
        }
        if !cpu.kernels.is_empty() {
            text += "kernels = [\n";
            for k in &cpu.kernels {
                let products =
                    k.giga_products_s.map_or_else(String::new, |p| format!(", giga_products_s = {}", float(p)));
                text += &format!(
                    "  {{ ty = {}, tokens = {}, threads = {}, gb_s = {}{products}, source = {} }},\n",
                    quote(&k.ty),
                    k.tokens,
                    k.threads,
                    float(k.gb_s),
                    quote(&k.source)
                );
            }
            text += "]\n";
        }
        if let Some(ssd) = &self.ssd {
            text += "\n[ssd]\n";
            text += &line("read_gb_s", &ssd.read_gb_s);
            text += &line("read_4k_us", &ssd.read_4k_us);
        }
        text
    }
}

fn line<T: Display>(name: &str, number: &Sourced<T>) -> String {
    format!("{name} = {{ value = {}, source = {} }}\n", number.value, quote(&number.source))
}

fn list(name: &str, values: &[AtThreads]) -> String {
    let mut text = format!("{name} = [\n");
    for at in values {
        let (value, source) = (float(at.value), quote(&at.source));
        text += &format!("  {{ threads = {}, value = {value}, source = {source} }},\n", at.threads);
    }
    text + "]\n"
}

/// A number as TOML has it. A whole one may stand without a point, since fields that take fractions take both.
fn float(value: f64) -> String {
    value.to_string()
}

/// A text as a TOML string.
fn quote(text: &str) -> String {
    toml::Value::String(text.into()).to_string()
}
