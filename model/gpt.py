"""A decoder-only character transformer in the style of nanoGPT; the norms come in as arguments.

Sources: Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762), Radford et al. 2019 (GPT-2). Each
block adds two branches F to the residual stream x, its attention and then its MLP. `placement` says
where the norms N are, and whether a final norm follows the last block:

    placement  block              final norm
    pre        x + F(N(x))        yes  Xiong et al. 2020, https://arxiv.org/abs/2002.04745
    post       N(x + F(x))        no   Vaswani et al. 2017
    sandwich   x + N2(F(N(x)))    yes  Peri-LN, Kim et al. 2025, https://arxiv.org/abs/2502.02732
    out        x + N(F(x))        yes  OLMo 2, 2025, https://arxiv.org/abs/2501.00656
    deepnorm   N(alpha x + F(x))  no   DeepNet, Wang et al. 2022, https://arxiv.org/abs/2203.00555

where alpha = (2 n_layer)^(1/4). `residual_gate` multiplies each branch (after N2, and after N in
`out`) by a learned number:

    rezero     one per block, starts at 0: Bachlechner et al. 2020, https://arxiv.org/abs/2003.04887
    skipinit   one per branch, starts at 1 / sqrt(2 n_layer): De, Smith 2020,
               https://arxiv.org/abs/2002.10444

Legend: B batch, T time, C channels (n_embd), H heads, D head size, V vocabulary.
"""

import math
import random
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

Norm = Callable[[int], nn.Module]  # called with the number of features
CHOICES = {
    "placement": ("pre", "post", "sandwich", "out", "deepnorm"),
    "residual_gate": ("none", "rezero", "skipinit"),
    "init": ("nanogpt", "xavier"),
}


class Attention(nn.Module):
    """Causal multi-head self-attention, (B, T, C) -> (B, T, C)."""

    def __init__(
        self, n_embd: int, n_head: int, dropout: float, bias: bool, qk_norm: Norm | None
    ) -> None:
        super().__init__()
        self.n_head = n_head
        self.dropout = dropout
        self.qkv = nn.Linear(n_embd, 3 * n_embd, bias=bias)
        self.proj = nn.Linear(n_embd, n_embd, bias=bias)
        self.q_norm = None if qk_norm is None else qk_norm(n_embd // n_head)
        self.k_norm = None if qk_norm is None else qk_norm(n_embd // n_head)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Mix each token with those before it, so that no real token sees padding on the right."""
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.n_head, C // self.n_head).unbind(2)  # (B, T, H, D)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q, mask), self.k_norm(k, mask)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))  # each (B, H, T, D)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        y = y.transpose(1, 2).reshape(B, T, C)
        return F.dropout(self.proj(y), self.dropout, self.training)


class MLP(nn.Module):
    """Two linear layers with a GELU between them, 4 C wide inside, (..., C) -> (..., C)."""

    def __init__(self, n_embd: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.dropout = dropout
        self.fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
        self.proj = nn.Linear(4 * n_embd, n_embd, bias=bias)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Transform each token on its own, so that `mask` is not needed."""
        return F.dropout(self.proj(F.gelu(self.fc(x))), self.dropout, self.training)


class Block(nn.Module):
    """Attention and MLP, each in a residual connection, (B, T, C) -> (B, T, C)."""

    def __init__(
        self,
        n_embd: int,
        n_layer: int,
        attention: Attention,
        mlp: MLP,
        attention_norm: Norm,
        mlp_norm: Norm,
        placement: str,
        residual_gate: str,
    ) -> None:
        super().__init__()
        sandwich = placement == "sandwich"
        self.placement = placement
        self.alpha = (2 * n_layer) ** 0.25
        self.attention_norm = attention_norm(n_embd)
        self.attention = attention
        self.mlp_norm = mlp_norm(n_embd)
        self.mlp = mlp
        self.attention_out_norm = attention_norm(n_embd) if sandwich else None
        self.mlp_out_norm = mlp_norm(n_embd) if sandwich else None
        starts = {"none": [], "rezero": [0.0], "skipinit": 2 * [(2 * n_layer) ** -0.5]}
        self.gates = nn.ParameterList(torch.tensor(start) for start in starts[residual_gate])

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Compute the formulas at the top of this file."""
        gates = tuple(self.gates) or (None,)  # the first is for attention, the last for the MLP
        for branch, norm, out_norm, gate in (
            (self.attention, self.attention_norm, self.attention_out_norm, gates[0]),
            (self.mlp, self.mlp_norm, self.mlp_out_norm, gates[-1]),
        ):
            y = branch(norm(x, mask) if self.placement in ("pre", "sandwich") else x, mask)
            y = norm(y, mask) if self.placement == "out" else y
            y = y if out_norm is None else out_norm(y, mask)
            y = y if gate is None else gate * y
            x = self.alpha * x if self.placement == "deepnorm" else x
            x = norm(x + y, mask) if self.placement in ("post", "deepnorm") else x + y
        return x


def seed_from(text: str) -> int:
    """A seed made from a text, the same in every process and version, which `hash` is not."""
    return random.Random(text).getrandbits(63)  # it hashes the text with SHA-512


@torch.no_grad()
def check_token_wise(norm: Norm, dim: int) -> None:
    """Refuse a norm for q and k that keeps statistics, fails on them, or lets tokens mix."""
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 2, 3, 2, dim, generator=draw, dtype=torch.float64)  # each (B, T, H, D)
    mask = torch.ones(2, 3, dtype=torch.bool)
    fault = ""
    try:
        probe = norm(dim).double()
        fault = "keeps statistics" if any(True for _ in probe.buffers()) else ""
        for token in ((0, 0), (1, 2)):  # stays the same while all others change
            y[token] = x[token]
            change = probe(x, mask)[token] - probe(y, mask)[token]
            fault = fault or ("" if change.abs().max() <= 1e-9 else "mixes tokens")
    except Exception as error:
        fault = fault or f"fails: {' '.join(str(error).split())}"
    if fault:
        wanted = "model.qk_norm must take each token alone"
        raise ValueError(f"{wanted}, but this norm {fault}; use rmsnorm")


class GPT(nn.Module):
    """The whole model: ids (B, T) -> logits (B, T, V).

    Args:
        norm: called as `norm(n_embd)` once for each site, so no two sites share a module.
        placement, residual_gate: see the top of this file.
        init: `nanogpt` draws from N(0, 0.02), and divides the residual projections by
            sqrt(2 n_layer). `xavier` has variance 2 / (fan in + fan out) for each matrix (Q, K and
            V count as three) and 1 / n_embd for embeddings. `placement=deepnorm` always uses
            `xavier`, with all linear layers but Q and K (8 n_layer)^(1/4) times smaller.
        embed_scale: a factor on the embeddings, or with learn_embed_scale the start of a learned
            factor. Norms rescale their input; without a norm the scale matters.
        attention_norm, mlp_norm, final_norm: norms for these sites instead of `norm`; final_norm
            also where the placement has no final norm.
        embedding_norm: a norm on the scaled embeddings, else there is none.
        qk_norm: called as `qk_norm(D)` for a norm on q and one on k, each (B, T, H, D).
        seed: of the initial weights. Each parameter has its own generator, seeded by (seed, name),
            so models with different norms, sites, placements or gates share their other weights to
            the bit, up to deepnorm's factors.

    Raises:
        ValueError: a size, option or norm is invalid.
    """

    def __init__(
        self,
        vocab_size: int,
        block_size: int,
        n_layer: int,
        n_head: int,
        n_embd: int,
        norm: Norm,
        *,
        placement: str = "pre",
        residual_gate: str = "none",
        init: str = "nanogpt",
        embed_scale: float = 1.0,
        learn_embed_scale: bool = False,
        attention_norm: Norm | None = None,
        mlp_norm: Norm | None = None,
        final_norm: Norm | None = None,
        embedding_norm: Norm | None = None,
        qk_norm: Norm | None = None,
        dropout: float = 0.0,
        bias: bool = False,
        seed: int = 1,
    ) -> None:
        super().__init__()
        if min(vocab_size, block_size, n_layer, n_head, n_embd) < 1 or n_embd % n_head:
            got = f"{vocab_size=} {block_size=} {n_layer=} {n_head=} {n_embd=}"
            raise ValueError(f"model sizes must be >= 1 and n_embd divisible by n_head, got {got}")
        if not 0 <= dropout < 1:
            raise ValueError(f"model.dropout={dropout} must be at least 0 and below 1")
        chosen = {"placement": placement, "residual_gate": residual_gate, "init": init}
        for key, value in chosen.items():
            if value not in CHOICES[key]:
                known = " | ".join(CHOICES[key])
                raise ValueError(f"model.{key}={value} is not known; use {known}")
        if qk_norm is not None:
            check_token_wise(qk_norm, n_embd // n_head)
        self.block_size = block_size
        self.dropout = dropout
        torch.manual_seed(seed_from(f"norms {seed}"))  # a norm may draw its parameters
        self.token_embedding = nn.Embedding(vocab_size, n_embd)
        self.position_embedding = nn.Embedding(block_size, n_embd)
        self.embed_scale: float | nn.Parameter = embed_scale
        if learn_embed_scale:
            self.embed_scale = nn.Parameter(torch.tensor(float(embed_scale)))
        self.embedding_norm = None if embedding_norm is None else embedding_norm(n_embd)
        norms = attention_norm or norm, mlp_norm or norm
        self.blocks = nn.ModuleList()
        for _ in range(n_layer):
            attention = Attention(n_embd, n_head, dropout, bias, qk_norm)
            mlp = MLP(n_embd, dropout, bias)
            block = Block(n_embd, n_layer, attention, mlp, *norms, placement, residual_gate)
            self.blocks.append(block)
        closing = final_norm or (norm if placement in ("pre", "sandwich", "out") else None)
        self.final_norm = None if closing is None else closing(n_embd)
        self._init_weights(init, placement == "deepnorm", n_layer, seed)

    @torch.no_grad()
    def _init_weights(self, init: str, deepnorm: bool, n_layer: int, seed: int) -> None:
        """Draw the initial value of every weight but those of norms, which have theirs already."""
        for name, module in self.named_modules():
            if not isinstance(module, nn.Linear | nn.Embedding) or "norm" in name:
                continue
            if init == "nanogpt" and not deepnorm:
                std = 0.02 / math.sqrt(2 * n_layer) if name.endswith("proj") else 0.02
            elif isinstance(module, nn.Embedding):
                std = module.embedding_dim**-0.5
            else:
                fan_out = module.in_features if name.endswith("qkv") else module.out_features
                std = math.sqrt(2 / (module.in_features + fan_out))
            generator = torch.Generator().manual_seed(seed_from(f"init {seed} {name}.weight"))
            module.weight.copy_(std * torch.randn(module.weight.shape, generator=generator))
            if isinstance(module, nn.Linear) and deepnorm:
                but_q_and_k = slice(2 * module.in_features if name.endswith("qkv") else 0, None)
                module.weight[but_q_and_k] *= (8 * n_layer) ** -0.25  # beta
            if isinstance(module, nn.Linear) and module.bias is not None:
                module.bias.zero_()

    def forward(self, idx: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Compute the logits (B, T, V) of the next character at each position of ids (B, T).

        `mask` (B, T) is True at real tokens and False at padding, which is on the right. Only norms
        that average over tokens use it.

        Raises:
            ValueError: more than block_size ids.
        """
        T = idx.shape[1]
        if T > self.block_size:
            raise ValueError(f"the model reads at most block_size={self.block_size} ids, got {T}")
        positions = torch.arange(T, device=idx.device)
        x = self.token_embedding(idx) + self.position_embedding(positions)  # (B, T, C)
        x = self.embed_scale * x
        if self.embedding_norm is not None:
            x = self.embedding_norm(x, mask)
        x = F.dropout(x, self.dropout, self.training)
        for block in self.blocks:
            x = block(x, mask)
        if self.final_norm is not None:
            x = self.final_norm(x, mask)
        return F.linear(x, self.token_embedding.weight)  # (B, T, V), the head is the embedding

    @torch.no_grad()
    def generate(
        self,
        idx: torch.Tensor,
        max_new_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Continue idx (B, T) to (B, T + max_new_tokens) in the current mode, train or eval.

        The model sees the last block_size ids. A temperature below 1 makes likely characters
        likelier, 0 takes the likeliest; top_k draws from the k likeliest only. Random numbers come
        from the generator, so that sampling does not change training's.

        Raises:
            ValueError: a negative temperature or a top_k below 1.
        """
        if not temperature >= 0 or (top_k is not None and top_k < 1):
            raise ValueError(f"need temperature >= 0 and top_k >= 1, got {temperature=} {top_k=}")
        for _ in range(max_new_tokens):
            # (B, V), drawn from on the CPU: one seed gives one text on every device
            logits = self(idx[:, -self.block_size :])[:, -1].cpu().double()
            if temperature == 0:
                following = logits.argmax(-1, keepdim=True)
            else:
                scaled = (logits - logits.amax(-1, keepdim=True)) / temperature
                if top_k is not None:
                    smallest = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
                    scaled = scaled.masked_fill(logits < smallest, -math.inf)
                following = torch.multinomial(scaled.softmax(-1), 1, generator=generator)
            idx = torch.cat([idx, following.to(idx.device)], dim=1)
        return idx
