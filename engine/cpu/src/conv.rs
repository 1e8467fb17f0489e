//! Causal depthwise convolution over the last few tokens.

use crate::Cpu;
use crate::isa::per_isa;
use crate::math::silu;

/// Values worth handing to another thread.
const GRAIN: usize = 8 * 1024;

/// `silu(conv(x))` for consecutive tokens of `channels` values, and the history moved on behind them.
///
/// `w` is `[taps][channels]`; the last tap meets the current token, the one before it the token `dilation` earlier,
/// and so on. `history` holds the `(taps - 1) * dilation` rows before the first, oldest first, zeros at the start of
/// a sequence. A row's sum runs from the oldest tap to the newest by fused multiply-add.
pub fn causal_silu(
    cpu: &Cpu,
    x: &[f32],
    w: &[f32],
    taps: usize,
    dilation: usize,
    channels: usize,
    history: &mut [f32],
    out: &mut [f32],
) {
    debug_assert_eq!(history.len(), (taps - 1) * dilation * channels);
    silu_behind(cpu, x, w, dilation, channels, history, out);
    advance(history, x, channels);
}

/// `silu(conv(x))` as in [`causal_silu`], the history left as it is.
pub fn silu_behind(
    cpu: &Cpu,
    x: &[f32],
    w: &[f32],
    dilation: usize,
    channels: usize,
    history: &[f32],
    out: &mut [f32],
) {
    cpu.pool().rows(out, channels, GRAIN.div_ceil(channels), |first, out| {
        rows_from(cpu.isa(), x, w, dilation, channels, history, first, out);
    });
}

/// Moves a history on behind the tokens of `x`.
pub fn advance(history: &mut [f32], x: &[f32], channels: usize) {
    let (kept, rows) = (history.len() / channels, x.len() / channels);
    if rows >= kept {
        history.copy_from_slice(&x[(rows - kept) * channels..]);
    } else {
        history.copy_within(rows * channels.., 0);
        history[(kept - rows) * channels..].copy_from_slice(x);
    }
}

per_isa! {
    /// The rows of `out`, of which the first is row `first` of the window.
    fn rows_from(
        isa: Isa,
        x: &[f32],
        w: &[f32],
        dilation: usize,
        channels: usize,
        history: &[f32],
        first: usize,
        out: &mut [f32],
    ) {
        let kept = history.len() / channels;
        for (t, out) in (first..).zip(out.chunks_exact_mut(channels)) {
            out.fill(0.0);
            for (k, w) in w.chunks_exact(channels).enumerate() {
                // Row t of the sequence "history, then x" that lies (taps - 1 - k) * dilation before the current one.
                let at = t + k * dilation;
                let row = if at < kept {
                    &history[at * channels..(at + 1) * channels]
                } else {
                    &x[(at - kept) * channels..(at - kept + 1) * channels]
                };
                for c in 0..channels {
                    out[c] = w[c].mul_add(row[c], out[c]);
                }
            }
            for v in out {
                *v = silu(*v);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    #[test]
    fn one_call_or_many_give_the_same_bits() {
        // Wide enough for several threads to share the rows.
        let (channels, taps, dilation) = (GRAIN / 3, 4, 3);
        let x: Vec<f32> = (0..20 * channels).map(|i| (i as f32 * 0.37).sin()).collect();
        let w: Vec<f32> = (0..channels * taps).map(|i| (i as f32 * 0.71).cos()).collect();
        let kept = (taps - 1) * dilation;
        let mut whole_history = vec![0.0; kept * channels];
        let mut whole = vec![0.0; x.len()];
        causal_silu(&Cpu::exactly(1, Isa::SCALAR), &x, &w, taps, dilation, channels, &mut whole_history, &mut whole);
        for piece in [1, 2, 7, 9, 11, 20] {
            let cpu = Cpu::exactly(piece % 4 + 1, Isa::detect());
            let mut history = vec![0.0; kept * channels];
            let mut out = vec![0.0; x.len()];
            for (x, out) in x.chunks(piece * channels).zip(out.chunks_mut(piece * channels)) {
                causal_silu(&cpu, x, &w, taps, dilation, channels, &mut history, out);
            }
            assert_eq!(out, whole, "pieces of {piece}");
            assert_eq!(history, whole_history, "pieces of {piece}");
        }
    }

    #[test]
    fn the_last_tap_meets_the_current_token() {
        let mut history = vec![0.0; 3];
        let mut out = vec![0.0; 2];
        causal_silu(&Cpu::exactly(1, Isa::SCALAR), &[1.0, 2.0], &[0.0, 0.0, 0.0, 1.0], 4, 1, 1, &mut history, &mut out);
        assert_eq!(out, [silu(1.0), silu(2.0)]);
        assert_eq!(history, [0.0, 1.0, 2.0]);
    }
}
